"""Shared by all programs of this folder: random examples, a network, a clock.

The time of a step does not depend on the pictures' content. `tf.keras` is Keras 3, or legacy Keras
if TF_USE_LEGACY_KERAS is set.
"""

import json
import os
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

EXAMPLES, CLASSES = 20_000, 10
PICTURES, SIDE = 1_000, 64
CLUSTER = json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {})
WORKERS = len(CLUSTER.get("worker", ["this one"]))
BATCH = 64 * WORKERS
EPOCHS, STEPS = (int(os.environ.get(name, "1")) for name in ("BENCH_EPOCHS", "BENCH_STEPS"))

Arrays = tuple[np.ndarray, np.ndarray]


def digits() -> tuple[Arrays, None]:
    """Return data for the trainer: uint8 [n, 28, 28, 1], and labels; no test data."""
    return _drawn(EXAMPLES, 28, 1), None


def pictures() -> tuple[Arrays, None]:
    """Return pictures of 64x64: uint8 [n, 64, 64, 3], and labels."""
    return _drawn(PICTURES, SIDE, 3), None


def _drawn(count: int, side: int, channels: int) -> Arrays:
    noise = np.random.default_rng(0)
    shape = [count, side, side, channels]
    return noise.integers(0, 256, shape, np.uint8), noise.integers(0, CLASSES, count)


def batches() -> Arrays:
    """Return the examples for an epoch's steps: float32 [n, 28, 28, 1], and labels."""
    (inputs, labels), _ = digits()
    taken = np.arange(STEPS * BATCH) % EXAMPLES
    return inputs[taken].astype(np.float32) / 255, labels[taken]


def network() -> tf.keras.Model:
    """Return mnist_cnn, compiled as in the tutorials; with XLA if BENCH_JIT is set."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(CLASSES),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    by_xla = {"jit_compile": True} if os.environ.get("BENCH_JIT") else {}
    model.compile(tf.keras.optimizers.SGD(0.001), loss, metrics=["accuracy"], **by_xla)
    return model


class Clock(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Records the examples/s of all workers together, for each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self._rates: list[float] = []
        self._began = 0.0

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        """Begin to count."""
        del epoch, logs
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Write all epochs so far."""
        del epoch, logs
        self._rates.append(STEPS * BATCH / (time.perf_counter() - self._began))
        tell(self._rates)


def tell(rates: list[float]) -> None:
    """Write the examples/s of each epoch to the file that the benchmark reads."""
    Path("/runs/rates.json").write_text(json.dumps(rates))
