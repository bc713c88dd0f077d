"""Workers count as alike even if Keras has numbered more layers and optimizers on one of them."""

import keras
import pytest

from cluster_trainer.checkpoints.checkpoint import uncounted
from cluster_trainer.checkpoints.state import State
from cluster_trainer.fits.identity.training_description import optimizer_described


def model():
    one = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    inner = keras.optimizers.SGD(0.1, momentum=0.9)
    one.compile(keras.optimizers.LossScaleOptimizer(inner), "mse")
    one.optimizer.build(one.trainable_variables)
    return one


def names_of(one):
    return State([*one.variables, *one.optimizer.variables]).names


def test_a_second_model_of_the_same_form_is_the_same():
    first, second = model(), model()
    assert names_of(first) != names_of(second)
    assert uncounted(names_of(first)) == uncounted(names_of(second))
    assert optimizer_described(first) == optimizer_described(second)


def test_what_decides_is_compared():
    first, second = model(), model()
    second.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.2)), "mse")
    assert optimizer_described(first) != optimizer_described(second)


def test_an_optimizer_that_a_step_has_built_is_the_same():
    """Within `apply`, Keras adds LossScaleOptimizer's name to its inner optimizer's variables."""
    first, second = model(), model()
    second.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, 0.9)), "mse")
    second.optimizer.apply(
        [keras.ops.zeros_like(one) for one in second.variables], second.variables
    )
    assert uncounted(names_of(first)) == uncounted(names_of(second))


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("model_1/dense_12/kernel float32[2,3]", "model/dense/kernel float32[2,3]"),
        ("sgd_6 int64[]", "sgd int64[]"),
        ("adam/dense_3_kernel_momentum float32[2]", "adam/dense_kernel_momentum float32[2]"),
        ("conv2d/kernel float32[1]", "conv2d/kernel float32[1]"),
        ("loss_scale_optimizer_2/adam_1/iteration int64[]", "adam/iteration int64[]"),
    ],
)
def test_the_numbers_of_names_are_left_out(name, left):
    assert uncounted([name]) == [left]
