"""bfloat16 and float16: what is computed in them, what is not, and who skips a step."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_loop import pictures, relative_difference, train

from cluster_trainer import export
from cluster_trainer.batches import distribute
from cluster_trainer.build import build_model, build_optimizer
from cluster_trainer.checkpoints.state import State
from cluster_trainer.config import TrainerConfig
from cluster_trainer.data.examples import DataSet
from cluster_trainer.data.order import Slice
from cluster_trainer.loop import Loop
from conftest import strategy_of

EXAMPLES = pictures(64)
DATA = DataSet("noise", EXAMPLES, EXAMPLES, 10)
SETTINGS = {"optimizer": "momentum", "learning_rate": 0.02}
HALVES = ["bfloat16", "float16"]


@pytest.fixture(autouse=True)
def _float32_afterwards():
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture
def config(tmp_path):
    def of(precision):
        return TrainerConfig(run_dir=tmp_path, precision=precision, **SETTINGS)

    return of


def regularised():
    layers = keras.layers
    inner = layers.Dense(16, activation="relu", kernel_regularizer="l2", activity_regularizer="l2")
    outer = layers.Dense(10, kernel_regularizer="l2", dtype="float32")
    return keras.Sequential([keras.Input((28, 28, 1)), layers.Flatten(), inner, outer])


def build(config, strategy, make_model=regularised):
    with strategy.scope():
        build_model(config, DATA)  # sets the precision
        keras.utils.set_random_seed(1)
        optimizer = build_optimizer(config, 1000, 16)
        return Loop(strategy, make_model(), optimizer)


def three_epochs(loop):
    """Return the weights after three epochs of 4 steps, and the loss of each."""
    losses = []
    for _ in range(3):
        weights = train(loop, EXAMPLES, 4)
        losses.append(loop.totals().mean_loss)
    return weights, losses


@pytest.fixture(scope="module")
def in_float32():
    settings = TrainerConfig(run_dir="/tmp", **SETTINGS)
    return three_epochs(build(settings, strategy_of(1)))[0]


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_any_number_of_replicas_trains_nearly_as_in_float32(
    config, in_float32, precision, replicas
):
    loop = build(config(precision), strategy_of(replicas))
    weights, losses = three_epochs(loop)
    assert losses[2] < losses[0]
    assert 1e-6 < relative_difference(in_float32, weights) < 0.05
    assert {weight.dtype for weight in loop.model.weights} == {"float32"}


def batches_with_an_overflow(strategy):
    """Three steps; on the second, the gradients of replica 1 leave the range of float16."""
    inputs = EXAMPLES.inputs[:8].astype(np.float32) / 255

    def make(_):
        def batch(index):
            share = tf.where(index == 3, 1e-30, 16.0)
            return inputs, tf.constant(EXAMPLES.labels[:8]), tf.ones([8]), share

        return tf.data.Dataset.range(6).map(batch).repeat()

    return distribute(strategy, Slice(8, 2), make)


def replicas_of(loop, variable):
    return loop.strategy.experimental_local_results(variable.value)


def values_on_all_replicas(loop):
    """Return every weight of the model and of the optimizer on replica 0, after a comparison."""
    first = []
    for variable in [*loop.model.variables, *loop.optimizer.inner_optimizer.variables]:
        replicas = replicas_of(loop, variable)
        np.testing.assert_array_equal(replicas[0].numpy(), replicas[1].numpy())
        assert np.isfinite(replicas[0]).all()
        first.append(replicas[0].numpy())
    return first


def test_an_overflow_on_one_replica_makes_all_skip_the_step(config):
    loop = build(config("float16"), strategy_of(2))
    batches = batches_with_an_overflow(loop.strategy)
    values, scales = [], []
    for _ in range(3):
        loop.train(batches, tf.constant(1))
        values.append(values_on_all_replicas(loop))
        scales.append([float(one) for one in replicas_of(loop, loop.optimizer.dynamic_scale)])
    assert scales == [[2**15] * 2, [2**14] * 2, [2**14] * 2]
    for before, after in zip(values[0], values[1], strict=True):
        np.testing.assert_array_equal(before, after)
    assert (values[1][0] != values[2][0]).any()


def test_a_checkpoint_holds_the_scale(config):
    loop = build(config("float16"), strategy_of(1))
    loop.optimizer.dynamic_scale.assign(8.0)
    loop.optimizer.step_counter.assign(5)
    state = State([*loop.model.variables, *loop.optimizer.variables])
    kept = state.take()
    loop.optimizer.dynamic_scale.assign(1.0)
    loop.optimizer.step_counter.assign(0)
    state.put_back(kept)
    assert float(loop.optimizer.dynamic_scale.numpy()) == 8
    assert int(loop.optimizer.step_counter.numpy()) == 5


@pytest.mark.parametrize("precision", HALVES)
def test_what_is_exported_takes_and_gives_float32(config, precision, tmp_path):
    model = build_model(config(precision), DATA)
    export.save(model, tmp_path)
    keras.config.set_dtype_policy("float32")  # as a program that knows nothing of the run
    inputs = EXAMPLES.inputs[:2].astype(np.float32) / 255
    reloaded = keras.models.load_model(tmp_path / export.KERAS_FILE)
    served = tf.saved_model.load(tmp_path / export.SAVED_MODEL)
    logits = served.serve(inputs)
    assert logits.dtype == tf.float32
    np.testing.assert_allclose(logits.numpy(), reloaded(inputs).numpy(), atol=1e-2)
    assert {weight.dtype for weight in reloaded.weights} == {"float32"}
