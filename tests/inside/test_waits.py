"""Steps tell how long they have waited for input, and for other replicas' gradients."""

import json
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.engine.steps import waits_of
from conftest import strategy_of

BATCHES, BATCH, WIDTH = 12, 8, 8
TRIES = 3  # other processes may have the processor for a while
ONE_THREAD = """
import json, os, time

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import keras, numpy as np
from cluster_trainer.engine.steps import waits_of

inputs = np.zeros((1024, 512), np.float32)
layers = [keras.layers.Dense(1024, activation="relu") for _ in range(3)]
model = keras.Sequential([keras.Input((512,)), *layers, keras.layers.Dense(512)])
model.compile("sgd", "mse")
model.fit(inputs, inputs, batch_size=64, verbose=0)
before, began = waits_of(model)["input"], time.monotonic()
model.fit(inputs, inputs, batch_size=64, verbose=0)
print(json.dumps([waits_of(model)["input"] - before, time.monotonic() - began]))
"""
pytestmark = pytest.mark.usefixtures("keeps_nothing")


def slow(content, seconds):
    """Return the same tensor, after some seconds for each time that it is computed."""

    def wait(value):
        time.sleep(seconds)
        return value

    shown = tf.numpy_function(wait, [content], content.dtype)
    return tf.ensure_shape(shown, content.shape)


class Slow(keras.layers.Layer):
    """Takes some seconds in each step."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds
        self.kernel = self.add_weight(shape=())

    def call(self, inputs):
        return slow(inputs, self.seconds) * self.kernel if self.seconds else inputs * self.kernel


def waited(of_input, of_step, replicas=1):
    """Train 12 steps with these seconds each; return the waits, and the seconds of the epoch."""
    keras.backend.clear_session()
    inputs = np.zeros((BATCHES * BATCH, WIDTH), np.float32)
    data = tf.data.Dataset.from_tensor_slices((inputs, inputs)).batch(BATCH, drop_remainder=True)
    if of_input:
        data = data.map(lambda x, y: (slow(x, of_input), y))
    with strategy_of(replicas).scope():
        model = keras.Sequential([keras.Input((WIDTH,)), Slow(of_step)])
        model.compile("sgd", "mse")
    model.fit(data, epochs=1, verbose=0)  # traces
    before, began = waits_of(model), time.monotonic()
    model.fit(data, epochs=1, verbose=0)
    seconds = time.monotonic() - began
    return {name: value - before[name] for name, value in waits_of(model).items()}, seconds


def test_slow_input_is_waited_for():
    found, seconds = waited(of_input=0.05, of_step=0)
    assert (BATCHES - 1) * 0.05 <= found["input"] <= seconds


def test_input_that_is_there_is_not_waited_for_however_long_a_step_takes():
    def share():
        found, seconds = waited(of_input=0, of_step=0.05)
        assert seconds >= BATCHES * 0.05
        return found["input"] / seconds

    assert any(share() < 0.2 for _ in range(TRIES))


def test_input_that_is_made_beside_the_steps_is_waited_for_no_longer_than_it_takes():
    found, seconds = waited(of_input=0.03, of_step=0.05)
    assert found["input"] <= seconds - BATCHES * 0.05


def test_a_process_with_one_thread_does_not_count_computing_as_waiting():
    command = [sys.executable, "-c", ONE_THREAD]

    def share():
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
        waited_seconds, seconds = json.loads(ended.stdout.splitlines()[-1])
        return waited_seconds / seconds

    assert any(share() < 0.3 for _ in range(TRIES))


def test_one_replica_waits_for_no_gradients():
    found, _ = waited(of_input=0, of_step=0)
    assert {*found} == {"input"}


def test_where_one_process_has_several_replicas_nothing_is_told():
    found, _ = waited(of_input=0, of_step=0, replicas=2)
    assert found == {}


def test_other_functions_than_the_engines_tell_nothing():
    assert waits_of(keras.Sequential()) == {}
