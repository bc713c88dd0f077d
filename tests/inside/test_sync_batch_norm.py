"""BatchNorm over the whole global batch: any number of replicas trains as one device does."""

import sys
import types

import keras
import numpy as np
import pytest
from test_loop import pictures, relative_difference, train

from cluster_trainer.build import build_model
from cluster_trainer.config import TrainerConfig
from cluster_trainer.data.examples import DataSet
from cluster_trainer.loop import Loop
from cluster_trainer.problems import ConfigurationError
from conftest import strategy_of

EXAMPLES = pictures(100)  # 7 batches an epoch, the last one filled up
DATA = DataSet("noise", EXAMPLES, EXAMPLES, 10)


def nested(shape, classes):
    layers = keras.layers
    # No bias before BatchNorm: its gradient is rounding and nothing else.
    convolution = layers.Conv2D(4, 3, strides=4, use_bias=False)
    part = keras.Sequential([keras.Input(shape), convolution, layers.BatchNormalization()])
    return keras.Sequential([part, layers.ReLU(), layers.Flatten(), layers.Dense(classes)])


@pytest.fixture
def loop(monkeypatch, tmp_path):
    own = types.ModuleType("own_model")
    own.build = nested
    monkeypatch.setitem(sys.modules, "own_model", own)
    known = TrainerConfig(run_dir=tmp_path, sync_batch_norm=True)
    config = known.model_copy(update={"model": "own_model:build"})

    def of(replicas):
        with strategy_of(replicas).scope():
            keras.utils.set_random_seed(1)
            optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
            return Loop(strategy_of(replicas), build_model(config, DATA), optimizer)

    return of


@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_train_to_the_weights_and_statistics_of_one_device(loop, replicas):
    alone, together = loop(1), loop(replicas)
    expected = train(alone, EXAMPLES, 21)
    assert relative_difference(expected, train(together, EXAMPLES, 21)) < 1e-4
    mean = together.model.layers[0].layers[1].moving_mean.value
    for value in together.strategy.experimental_local_results(mean):
        np.testing.assert_array_equal(value, mean)


def test_a_model_without_batch_norm_is_refused(tmp_path):
    config = TrainerConfig(run_dir=tmp_path, sync_batch_norm=True)
    with pytest.raises(ConfigurationError, match=r"SYNC_BATCH_NORM.* false for mnist_cnn"):
        build_model(config, DATA)
