"""A learning-rate schedule of a script's own may count its calls: nothing else may call it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.callbacks.recording.logs import present_rate
from conftest import strategy_of

INPUTS = np.random.default_rng(0).random((48, 4)).astype("float32")
TARGETS = INPUTS.sum(1, keepdims=True)
pytestmark = pytest.mark.usefixtures("keeps_nothing")


class InAVariable(keras.optimizers.schedules.LearningRateSchedule):
    """Counts its calls in a variable."""

    def __init__(self):
        self.calls = [tf.Variable(0.0, trainable=False)]

    def __call__(self, step):  # noqa: ARG002
        return 0.1 / self.calls[0].assign_add(1.0)

    @property
    def count(self):
        return float(self.calls[0])

    def get_config(self):
        return {}


class InPython(keras.optimizers.schedules.LearningRateSchedule):
    """Counts its calls in an attribute."""

    def __init__(self):
        self.count = 0

    def __call__(self, step):  # noqa: ARG002
        self.count += 1
        return 0.1 / self.count

    def get_config(self):
        return {}


def mean_of_squares(wanted, found):
    return tf.reduce_mean(tf.square(wanted - found), -1)


def made(schedule, *, replicas=2, **options):
    """Return a model whose first batch is compared."""
    with strategy_of(replicas).scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(schedule), mean_of_squares, **options)
    return model


def fitted(model):
    model.fit(INPUTS, TARGETS, batch_size=8, epochs=2, verbose=0)


@pytest.mark.parametrize("kind", [InAVariable, InPython])
def test_to_show_the_rate_counts_no_call(kind):
    schedule = kind()
    model = made(schedule, replicas=1)
    assert [round(present_rate(model), 6) for _ in range(3)] == [0.1] * 3
    assert schedule.count == 0


def test_each_compiled_step_counts_one_call():
    schedule = InAVariable()
    fitted(made(schedule, replicas=1))
    assert schedule.count == 12


@pytest.mark.parametrize("replicas", [1, 2])
def test_each_eager_step_counts_one_call_of_each_replica(replicas, capsys):
    """With two replicas, the first and the last batch are computed again, and traced."""
    schedule = InPython()
    fitted(made(schedule, replicas=replicas, run_eagerly=True))
    assert schedule.count == 12 * replicas
    assert "changes its own attributes" not in capsys.readouterr().out


def test_a_compiled_step_that_counts_in_python_causes_a_warning(capsys):
    fitted(made(InPython()))
    assert "schedule InPython changes its own attributes when it is called (count)" in (
        capsys.readouterr().out
    )
