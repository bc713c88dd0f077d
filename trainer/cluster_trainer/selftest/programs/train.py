"""Trains a small classifier like a user's script. `selftest` runs it on one device and on many.

The batches are the same everywhere, so the weights must be the same, up to rounding.
"""

import argparse
import json
import os
import signal
import time
import zlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import cluster_trainer
from cluster_trainer.collectives.replicas import count_of
from cluster_trainer.collectives.workers import workers_of

EPOCHS, KILLED_IN = 6, 2


class Watch(keras.callbacks.Callback):
    """Measures the epochs. With `kills`, kills the last worker's process in its first start."""

    def __init__(self, *, kills: bool) -> None:
        super().__init__()
        worker = cluster_trainer.this_worker()
        is_last = worker.rank == worker.num_workers - 1
        self._kills = kills and is_last and os.environ.get("RESTART_COUNT") == "0"
        self._began = 0.0
        self.epochs: list[int] = []
        self.seconds: list[float] = []
        self.replicas = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002, D102
        if self._kills and epoch == KILLED_IN:
            os.kill(os.getpid(), signal.SIGKILL)
        self.replicas = count_of(self.model.distribute_strategy)
        self.epochs.append(epoch)
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002, D102
        self.seconds.append(time.perf_counter() - self._began)


def main(given: argparse.Namespace) -> None:
    """Train; write the weights, the speed, the number of replicas, and the difference."""
    tf.config.experimental.enable_tensor_float_32_execution(False)  # noqa: FBT003  its signature
    strategy = None
    if given.strategy:
        strategy = cluster_trainer.start_strategy(strategy=given.strategy, collectives="tensorflow")
    keras.utils.set_random_seed(1)
    inputs = np.random.default_rng(1).random([given.examples, 28, 28, 1], np.float32)
    labels = np.random.default_rng(2).integers(10, size=[given.examples])
    with strategy.scope() if strategy else nullcontext():
        model = _classifier(given.width)
    watch = Watch(kills=given.kill)
    model.fit(inputs, labels, batch_size=given.batch, epochs=EPOCHS, verbose=2, callbacks=[watch])
    weights = np.concatenate([one.ravel() for one in model.get_weights()])
    np.save(given.weights, weights)
    workers = workers_of(strategy or tf.distribute.get_strategy())
    facts = {
        "replicas": watch.replicas,
        "parameters": int(weights.size),
        "batch": given.batch,
        "examples_per_second": given.examples / min(watch.seconds[1:] or watch.seconds),
        "restarts": workers.gather(int(os.environ.get("RESTART_COUNT", "0")), "restarts"),
        "first_epochs": workers.gather(watch.epochs[0], "first epochs"),
        "digests": workers.gather(zlib.crc32(weights.tobytes()), "digests of the weights"),
        "difference": _difference(weights, given.reference),
    }
    Path(given.result).write_text(json.dumps(facts))


def _classifier(width: int) -> keras.Model:
    """Return a model of smooth functions: at a ReLU's corner, rounding differences grow."""
    model = keras.Sequential(
        [
            keras.layers.Input([28, 28, 1]),
            keras.layers.Conv2D(32, 3, strides=2, activation="tanh"),
            keras.layers.Flatten(),
            keras.layers.Dense(width, activation="tanh"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss)
    return model


def _difference(weights: np.ndarray, reference: str) -> float:
    """Return the largest difference from other weights, relative to the largest weight."""
    if not reference:
        return 0.0
    expected = np.load(reference)
    return float(np.abs(weights - expected).max() / np.abs(expected).max())


def _read() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--result", required=True, help="the file for the results")
    parser.add_argument("--weights", required=True, help="the file for the weights")
    parser.add_argument("--reference", default="", help="a file of weights to compare with")
    parser.add_argument("--strategy", default="", help="multiworker; none without it")
    parser.add_argument("--kill", action="store_true", help="kill the last worker once")
    for name in ("examples", "batch", "width"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main(_read())
