"""A worker that is alive but stuck in a step: the others would wait forever."""

import pytest

from harness.ended import wait_for_end
from harness.waiting import logs_of, wait_for_text

# Hangs once in a training step, like a file system whose server is gone.
HANGS = """
import itertools
import os
import time
from pathlib import Path

import keras
import tensorflow as tf

from cluster_trainer.models import networks

STEP = int(os.environ.get("HANGS_IN_STEP", 0))
HUNG = Path("/runs/hung")
steps = itertools.count(1)

def build(input_shape, num_classes):
    network = networks.mnist_cnn(input_shape, num_classes)
    return keras.Sequential([keras.Input(input_shape), Hangs(), network])

class Hangs(keras.layers.Layer):
    def call(self, inputs, training=False):
        if not training:
            return inputs
        with tf.control_dependencies([tf.py_function(hang_once, [], [])]):
            return tf.identity(inputs)

def hang_once():
    if next(steps) == STEP and not HUNG.exists():
        HUNG.touch()
        print("it hangs", flush=True)
        time.sleep(3600)
"""
SETTINGS = {
    "TRAINER_MODEL": "hangs:build",
    "TRAINER_EPOCHS": "5",
    "TRAINER_THREADS": "1",
    "TRAINER_CHECKPOINT_STEPS": "10",
    "TRAINER_STALL_TIMEOUT_SECONDS": "8",
}
STUCK = {"HANGS_IN_STEP": "50"}
RECOVERY_SECONDS = 90


@pytest.fixture
def start(peers, tmp_path):
    """Start two workers with separate disks; worker `stuck` hangs in a step."""
    (tmp_path / "hangs.py").write_text(HANGS)
    options = {"volumes": [f"{tmp_path}:/workspace:ro"], "tmpfs": {"/runs": "mode=1777"}}
    cluster = peers(2)

    def start_both(stuck):
        own = [STUCK if index == stuck else {} for index in range(2)]
        return [cluster.start(index, **options, **SETTINGS, **own[index]) for index in range(2)]

    return start_both


# tests/unit/trainer/test_watch.py ends a stuck step. test_restart_policies.py restarts workers.
@pytest.mark.long
@pytest.mark.parametrize("stuck", [0, 1], ids=["the-chief", "a-worker"])
def test_all_start_again_from_the_last_checkpoint(start, stuck):
    workers = start(stuck)
    wait_for_text(workers[stuck], "it hangs", RECOVERY_SECONDS)
    for worker in workers:
        wait_for_text(worker, "resuming from step", RECOVERY_SECONDS)
    # Either worker may notice first. The other follows it to the gate.
    assert any("a step takes far longer than all before it" in logs_of(w) for w in workers)
    for worker in workers:
        assert wait_for_end(worker, RECOVERY_SECONDS).code == 0
