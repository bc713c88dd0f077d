"""Queues that a step fills eagerly, or outside of TensorFlow's variables, cause a warning."""

from collections import deque

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.engine.replicas.state import own_state, queues
from conftest import strategy_of

INPUTS = np.random.default_rng(0).random((16, 4)).astype("float32")
TARGETS = INPUTS.sum(1, keepdims=True)
pytestmark = pytest.mark.usefixtures("keeps_nothing")


class InAVariable(keras.Sequential):
    """Keeps the last rows in a variable, and their running mean in another one."""

    def __init__(self):
        super().__init__([keras.Input((4,)), keras.layers.Dense(1)])
        self.rows = self.add_weight(shape=(12, 4), initializer="zeros", trainable=False)
        self.mean = self.add_weight(shape=(12,), initializer="zeros", trainable=False)

    def train_step(self, data):
        self.fill(data[0])
        return super().train_step(data)

    def fill(self, rows):
        self.rows.assign(tf.concat([rows, self.rows], 0)[:12])
        self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(rows))


class InPython(InAVariable):
    """Keeps the last rows in a deque."""

    def __init__(self):
        super().__init__()
        self.memory = deque(maxlen=12)

    def fill(self, rows):
        self.memory.extend(rows.numpy())


def said_of(kind, capsys):
    own_state._warn_of_eager_queue.cache_clear()  # noqa: SLF001
    with strategy_of(2).scope():
        model = kind()
        model.compile("sgd", "mse", run_eagerly=True)
    model.fit(INPUTS, TARGETS, batch_size=8, verbose=0)
    return [line for line in capsys.readouterr().out.splitlines() if "WARNING" in line]


def test_a_variable_that_an_eager_step_uses_as_a_queue_is_named(capsys):
    (said,) = said_of(InAVariable, capsys)
    assert "looks like a queue of examples" in said


def test_a_queue_of_python_is_named(capsys):
    (said,) = said_of(InPython, capsys)
    assert "memory (deque) of InPython may hold the rows of a share" in said


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ([9, 8, 1, 2], True),
        ([3, 4, 9, 8], True),
        ([1, 2, 3, 4], False),
        ([2, 3, 4, 5], False),
        ([1, 2, 9, 8], False),
    ],
    ids=["before", "behind", "unchanged", "all", "a part"],
)
def test_a_queue_has_moved_on_by_a_shares_rows(now, expected):
    assert queues.has_moved_on(np.array([1, 2, 3, 4]), np.array(now), 2) is expected
