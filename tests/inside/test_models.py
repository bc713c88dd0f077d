import sys
import types

import keras
import numpy as np
import pytest

from trainer.data.examples import DataSet, Examples
from trainer.problems import ConfigurationError
from trainer.train import build_model

EXAMPLES = Examples(np.zeros([4, 3], np.float32), np.arange(4))
DATA = DataSet("four", EXAMPLES, EXAMPLES, 4)


def dense(units, activation=None):
    layer = keras.layers.Dense(units, activation=activation)
    return lambda shape, _: keras.Sequential([keras.Input(shape), layer])


@pytest.fixture
def own(monkeypatch):
    module = types.ModuleType("own_model")
    monkeypatch.setitem(sys.modules, "own_model", module)
    return module


def test_own_function_builds_the_model(own):
    own.build = dense(4)
    assert build_model("own_model:build", DATA).output_shape == (None, 4)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (dense(5), "4 logits"),
        (dense(4, "softmax"), "leave it out"),
        (lambda _shape, _classes: "model", "returned str"),
        (lambda: None, "positional argument"),
    ],
)
def test_an_unusable_model_is_a_problem(own, build, said):
    own.build = build
    with pytest.raises(ConfigurationError, match=said):
        build_model("own_model:build", DATA)


def test_the_tutorials_network_has_their_number_of_weights():
    digits = Examples(np.zeros([1, 28, 28, 1], np.uint8), np.zeros(1, int))
    model = build_model("mnist_cnn", DataSet("digits", digits, digits, 10))
    assert model.count_params() == 347_146
