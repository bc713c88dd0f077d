"""Uses that Keras's own fit cannot handle on several replicas are refused or reported."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.engine.data import pipelines
from conftest import strategy_of

EXAMPLES = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)


def compiled(optimizer, **options):
    with strategy_of(2).scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(optimizer, "mse", **options)
    return model


def test_an_optimizer_made_outside_of_the_scope_is_refused():
    """All replicas of a process would count the optimizer's steps in one variable."""
    model = compiled(keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match="outside of the strategy's scope"):
        model.fit(*EXAMPLES, verbose=0)


def test_a_seed_of_the_script_decides_the_order():
    keras.utils.set_random_seed(5)
    stream = tf.data.Dataset.range(8).shuffle(8).batch(4)
    assert not pipelines.warnings(stream)
