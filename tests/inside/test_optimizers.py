"""Optimizers of a script's own: on several replicas they do what they do on one device."""

import keras
import numpy as np
import pytest
from test_loop import pictures, relative_difference, train

from cluster_trainer.data.examples import Examples
from cluster_trainer.loop import Loop
from conftest import strategy_of

STEPS = 10
PICTURES = pictures(60)
noise = np.random.default_rng(0)
WORDS = Examples(noise.integers(0, 50, [60, 12]), noise.integers(0, 10, 60))


def of_pictures():
    layers = [keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)]
    return keras.Sequential(layers)


def of_words():
    layers = [keras.Input((12,), dtype="int32"), keras.layers.Embedding(50, 8)]
    return keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(10)])


def build(replicas, make_optimizer, make_model=of_pictures):
    keras.utils.set_random_seed(1)
    with strategy_of(replicas).scope():
        return Loop(strategy_of(replicas), make_model(), make_optimizer())


@pytest.fixture(scope="module")
def unclipped():
    return train(build(1, lambda: keras.optimizers.SGD(0.5)), PICTURES, STEPS)


@pytest.mark.parametrize(
    "options",
    [{"global_clipnorm": 0.05}, {"clipnorm": 0.03}, {"clipvalue": 0.002}],
    ids="".join,
)
def test_the_gradient_of_the_whole_batch_is_clipped(unclipped, options):
    def optimizer():
        return keras.optimizers.SGD(0.5, **options)

    alone, two, four = (train(build(n, optimizer), PICTURES, STEPS) for n in (1, 2, 4))
    assert relative_difference(alone, two) < 1e-4
    assert relative_difference(alone, four) < 1e-4
    assert relative_difference(alone, unclipped) > 1e-2


def test_so_is_that_of_an_embedding():
    def optimizer():
        return keras.optimizers.SGD(0.5, global_clipnorm=0.05)

    alone, both = (train(build(n, optimizer, of_words), WORDS, STEPS) for n in (1, 2))
    assert relative_difference(alone, both) < 1e-4


def test_so_is_one_with_a_loss_scale():
    def optimizer():
        inner = keras.optimizers.SGD(0.5, global_clipnorm=0.05)
        return keras.optimizers.LossScaleOptimizer(inner)

    alone, both = (train(build(n, optimizer), PICTURES, STEPS) for n in (1, 2))
    assert relative_difference(alone, both) < 1e-4


def test_so_is_that_of_several_optimizers():
    def optimizer():
        clipping = keras.optimizers.SGD(0.5, global_clipnorm=0.05)
        return keras.optimizers.MultiOptimizer(lambda _: clipping)

    alone, both = (train(build(n, optimizer), PICTURES, STEPS) for n in (1, 2))
    assert relative_difference(alone, both) < 1e-4
