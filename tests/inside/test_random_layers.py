"""Keras' random layers on several replicas: each draws for itself, and the same again."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_loop import pictures, train

from cluster_trainer import random_layers
from cluster_trainer.checkpoints.state import State
from cluster_trainer.loop import Loop
from conftest import strategy_of

EXAMPLES = pictures(64)
layers = keras.layers
LAYERS = {
    "dropout": lambda: layers.Dropout(0.5),
    "noise": lambda: layers.GaussianNoise(1.0),
    "augmentation": lambda: layers.RandomTranslation(0.3, 0.3),
}


def build(replicas, make_layer=LAYERS["dropout"]):
    keras.utils.set_random_seed(1)
    with strategy_of(replicas).scope():
        parts = [keras.Input((28, 28, 1)), make_layer(), layers.Flatten(), layers.Dense(10)]
        return Loop(strategy_of(replicas), keras.Sequential(parts), keras.optimizers.SGD(0.05))


def draw(loop):
    """Return what the random layer makes of the same pictures on each replica."""
    given = EXAMPLES.inputs[:4].astype(np.float32)

    @tf.function
    def on_all():
        return loop.strategy.run(lambda: loop.model.layers[0](given, training=True))

    return [value.numpy() for value in loop.strategy.experimental_local_results(on_all())]


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_no_two_replicas_draw_the_same(make):
    drawn = draw(build(4, make))
    assert len({values.tobytes() for values in drawn}) == 4


def test_each_step_draws_anew_and_another_run_the_same_again():
    loop = build(2)
    first, second = draw(loop), draw(loop)
    assert not np.array_equal(first[1], second[1])
    for before, again in zip(first, draw(build(2)), strict=True):
        np.testing.assert_array_equal(before, again)


def test_a_run_that_goes_on_draws_what_it_would_have_drawn():
    loop = build(2)
    train(loop, EXAMPLES, 3)
    kept = State([*loop.model.variables, *loop.optimizer.variables]).take()
    expected = draw(loop)
    other = build(2)
    State([*other.model.variables, *other.optimizer.variables]).put_back(kept)
    for values, again in zip(expected, draw(other), strict=True):
        np.testing.assert_array_equal(values, again)


def test_one_device_draws_what_keras_draws(monkeypatch):
    (drawn,) = draw(build(1))
    keras.utils.set_random_seed(1)
    model = build(1).model
    monkeypatch.setattr(keras.random.SeedGenerator, "next", random_layers._next_alike)  # noqa: SLF001
    own = model.layers[0](EXAMPLES.inputs[:4].astype(np.float32), training=True)
    np.testing.assert_array_equal(drawn, own)
