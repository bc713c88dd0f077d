import sys
import types

import keras
import numpy as np
import pytest

from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.models.build import build_model as build_model_of
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.names import models

EXAMPLES = Examples(np.zeros([4, 3], np.float32), np.arange(4))
DATA = DataSet("four", EXAMPLES, EXAMPLES, 4)


def build_model(name, data):
    known = TrainerConfig(run_dir="/tmp")  # it would refuse a module that exists only here
    return build_model_of(known.model_copy(update={"model": name}), data)


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
    "build",
    [
        lambda shape, classes: dense(classes)(shape, classes),
        lambda shape, classes=4, *, name="own": dense(classes)(shape, name),
        lambda shape: dense(4)(shape, None),
        lambda: dense(4)((3,), None),
        lambda *told: dense(told[1])(told[0], None),
    ],
)
def test_it_is_told_as_much_as_it_takes(own, build):
    own.build = build
    assert build_model("own_model:build", DATA).output_shape == (None, 4)


@pytest.mark.parametrize("data", [[1, 2], None], ids=["batches", "nothing"])
def test_of_other_data_it_is_told_nothing(own, data):
    other = DataSet("other", data, None)
    own.build = lambda: dense(4)((3,), None)
    assert build_model("own_model:build", other).output_shape == (None, 4)
    own.build = dense(4)
    with pytest.raises(ConfigurationError, match="a function of 0 arguments or fewer"):
        build_model("own_model:build", other)


def test_a_compiled_model_stays_compiled(own):
    def build(shape):
        model = dense(4)(shape, None)
        model.compile("sgd", "mse")
        return model

    own.build = build
    assert build_model("own_model:build", DATA).compiled


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda _shape, _classes: "model", "returned str"),
        (lambda _shape, _classes, _more: None, " 3"),
        (lambda _shape: keras.layers.Dense("x"), "x"),
    ],
)
def test_an_unusable_function_is_a_problem(own, build, said):
    own.build = build
    with pytest.raises(ConfigurationError, match=said):
        build_model("own_model:build", DATA)


def test_the_tutorials_network_has_their_number_of_weights():
    digits = Examples(np.zeros([1, 28, 28, 1], np.uint8), np.zeros(1, int))
    model = build_model("mnist_cnn", DataSet("digits", digits, digits, 10))
    assert model.count_params() == 347_146


def pictures_of(*shape):
    pictures = Examples(np.zeros([1, *shape], np.uint8), np.zeros(1, int))
    return DataSet("pictures", pictures, pictures, 5)


@pytest.mark.parametrize("name", models.SMALLEST_SIDES)
@pytest.mark.parametrize("shape", [(32, 32, 1), (40, 64, 3)])
def test_pictures_of_any_shape_become_logits(name, shape):
    model = build_model(name, pictures_of(*shape))
    logits = model(np.ones([2, *shape], np.float32)).numpy()
    assert logits.shape == (2, 5)
    assert logits.sum() < 1  # a softmax's would be 2
    momenta = {getattr(layer, "momentum", 0) for layer in model.layers}
    assert max(momenta) == 0.9  # with Keras's default, 450 steps end in chance accuracy


@pytest.mark.parametrize("name", models.SMALLEST_SIDES)
@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 31, 3), (32,)])
def test_too_small_a_picture_is_refused_with_what_to_do(name, shape):
    with pytest.raises(ConfigurationError, match=r"TRAINER_IMAGE_SIZE .* of 32 or more"):
        build_model(name, pictures_of(*shape))
