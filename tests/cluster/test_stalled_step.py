"""A worker that lives, and yet never comes to the next step: the others would wait for ever."""

import pytest

from harness.ended import wait_for_end
from harness.waiting import logs_of, wait_for_text

# Hangs once, in the step after the file was made, as a file system does whose server is gone.
HANGS = """
import time
from pathlib import Path

import keras
import tensorflow as tf

from cluster_trainer.models import mnist_cnn

TRIGGER = Path("/runs/hang")

def build(input_shape, num_classes):
    network = mnist_cnn.build(input_shape, num_classes)
    return keras.Sequential([keras.Input(input_shape), Hangs(), network])

class Hangs(keras.layers.Layer):
    def call(self, inputs, training=False):
        if not training:
            return inputs
        with tf.control_dependencies([tf.py_function(hang_once, [], [])]):
            return tf.identity(inputs)

def hang_once():
    time.sleep(0.01)
    if TRIGGER.exists():
        TRIGGER.unlink()
        print("it hangs", flush=True)
        time.sleep(3600)
"""
SETTINGS = {
    "TRAINER_MODEL": "hangs:build",
    "TRAINER_EPOCHS": "20",
    "TRAINER_THREADS": "1",
    "TRAINER_CHECKPOINT_STEPS": "10",
    "TRAINER_STALL_TIMEOUT_SECONDS": "8",
}
RECOVERY_SECONDS = 90


@pytest.fixture
def workers(peers, tmp_path):
    """Two workers in the middle of training, with disks of their own."""
    (tmp_path / "hangs.py").write_text(HANGS)
    volumes = [f"{tmp_path}:/workspace:ro"]
    cluster = peers(2)
    started = [
        cluster.start(index, volumes=volumes, tmpfs={"/runs": "mode=1777"}, **SETTINGS)
        for index in range(2)
    ]
    wait_for_text(started[0], "epoch  1/20", RECOVERY_SECONDS)
    return started


@pytest.mark.parametrize(
    "stuck",
    [
        pytest.param(0, id="the-chief"),
        pytest.param(1, id="a-worker", marks=pytest.mark.long),
    ],
)
def test_all_start_again_from_the_last_checkpoint(workers, stuck):
    workers[stuck].exec_run(["touch", "/runs/hang"])
    wait_for_text(workers[stuck], "it hangs")
    for worker in workers:
        wait_for_text(worker, "resuming from step", RECOVERY_SECONDS)
    # Whichever sees it first; the others follow it to the gate.
    assert any("a step takes far longer than all before it" in logs_of(w) for w in workers)
    for worker in workers:
        assert wait_for_end(worker, RECOVERY_SECONDS).code == 0
