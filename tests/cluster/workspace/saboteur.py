"""A model that records the examples of each step, and that can end its own machine.

The chaos tests mount this folder at /workspace, and their own folder at /chaos. There,
`records.jsonl` has one JSON object per line for each event of a training process:

    {"time": 1795267385.1, "event": "start"}                        a process has begun
    {"time": 1795267389.3, "event": "log", "text": "resuming …"}    it logged this
    {"time": 1795267390.7, "event": "batch", "ids": [1204, 17, …]}  it trains on these examples

To trigger an act once, a test creates a file in /chaos. Its name is one of the MOMENTS,
`kill-during-evaluation` or `exhaust-memory`.
"""

import json
import logging
import os
import signal
import threading
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives import buckets
from cluster_trainer.data import registry
from cluster_trainer.models import networks

CHAOS = Path("/chaos")
RECORDS = CHAOS / "records.jsonl"
# The delay of each step. A test may change it during the run.
STEP_SECONDS = CHAOS / "step-seconds"
# Small enough for three workers to take a step in some 20 ms on two cores.
PICTURE_SIDE = 14
POLL_SECONDS = 0.001
MEMORY_CHUNK_BYTES = 10_000_000
# Trigger -> the file that is in the run directory during the moment.
MOMENTS = {
    "kill-during-checkpoint": "*/checkpoints/.unfinished.*",
    "kill-during-export": "*/.unfinished.model.keras",
}
EVALUATION = "kill-during-evaluation"
MEMORY = "exhaust-memory"

Split = tuple[np.ndarray, np.ndarray]


def load() -> tuple[Split, Split]:
    """Return the embedded digits, each picture with its own number in its upper corners."""
    _record("start")
    logging.getLogger("trainer").addHandler(_LogRecorder())
    threading.Thread(target=_wait_for_triggers, daemon=True).start()
    data = registry.load("digits", Path("/data"), PICTURE_SIDE)
    return tuple((_numbered(part.inputs), part.labels) for part in (data.train, data.test))


def build(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Return the tutorials' network behind a layer that records its inputs."""
    network = networks.mnist_cnn(input_shape, num_classes)
    if bucket_bytes := os.environ["SABOTEUR_PACK_BYTES"]:
        _sum_in_buckets(network, int(bucket_bytes))
    return keras.Sequential([keras.Input(input_shape), Recorder(), network], name="saboteur")


class Recorder(keras.layers.Layer):
    """Records its inputs and passes them on. Its copies, as in the export, do not record."""

    def __init__(self, *, records: bool = True, **options: object) -> None:
        super().__init__(**options)
        self.records = records

    def get_config(self) -> dict[str, object]:
        """Return the configuration of a copy, which does not record."""
        return super().get_config() | {"records": False}

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:  # noqa: FBT001
        """Return `inputs`, float32 [n, height, width, 1] in 0..1."""
        if not self.records:
            return inputs
        corners = tf.stack([inputs[:, 0, 0, 0], inputs[:, 0, -1, 0]])
        record = _trains if training else _evaluates
        with tf.control_dependencies([tf.py_function(record, [corners], [])]):
            return tf.identity(inputs)


class _LogRecorder(logging.Handler):
    """Records what the trainer logs, in order with the batches."""

    def emit(self, record: logging.LogRecord) -> None:
        _record("log", text=record.getMessage())


def _numbered(pictures: np.ndarray) -> np.ndarray:
    """Write the number of each picture, uint8 [n, height, width, 1], into its corners."""
    numbers = np.arange(len(pictures))
    pictures[:, 0, 0, 0], pictures[:, 0, -1, 0] = numbers // 256, numbers % 256
    return pictures


def _sum_in_buckets(network: keras.Model, bucket_bytes: int) -> None:
    """Sum gradients in buckets of at least this many bytes per worker; fail if one is enough."""
    buckets.BYTES_PER_RANK = bucket_bytes
    workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    weights = [one.value for one in network.trainable_weights]
    assert len(buckets.buckets_of(weights, tf.float32, workers)) > 1, (
        f"{bucket_bytes} is one bucket"
    )


def _trains(corners: tf.Tensor) -> None:
    """Record a batch by its corners, float32 [2, n], and delay the step."""
    high, low = np.rint(corners.numpy() * 255).astype(int)
    _record("batch", ids=(256 * high + low).tolist())
    time.sleep(float(STEP_SECONDS.read_text()))


def _evaluates(_: tf.Tensor) -> None:
    if _is_triggered(EVALUATION):
        _end_machine()


def _record(event: str, **details: object) -> None:
    line = json.dumps({"time": time.time(), "event": event} | details)
    # One write to a file that is opened for appending: a killed process leaves whole lines.
    with RECORDS.open("a") as file:
        file.write(line + "\n")


def _wait_for_triggers() -> None:
    while True:
        for trigger, pattern in MOMENTS.items():
            if (CHAOS / trigger).exists() and any(_run_dir().glob(pattern)):
                _is_triggered(trigger)
                _end_machine()
        if _is_triggered(MEMORY):
            _exhaust_memory()
        time.sleep(POLL_SECONDS)


def _run_dir() -> Path:
    return Path(os.environ.get("TRAINER_RUN_DIR", "/runs"))


def _is_triggered(trigger: str) -> bool:
    """Tell whether the trigger's file exists, and remove it, so that it acts once."""
    try:
        (CHAOS / trigger).unlink()
    except FileNotFoundError:
        return False
    return True


def _end_machine() -> None:
    """Kill all processes in this container. It ends, since tini ends with its child."""
    _record("end")
    os.kill(-1, signal.SIGKILL)  # all but tini and this process
    os.kill(os.getpid(), signal.SIGKILL)


def _exhaust_memory() -> None:
    hoard = []
    while True:
        hoard.append(b"x" * MEMORY_CHUNK_BYTES)
