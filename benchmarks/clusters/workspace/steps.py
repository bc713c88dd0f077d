"""A script that notes when each of its steps ends, for what a killed worker costs.

A line each in /runs/steps.jsonl: [seconds since 1970, what]. A start notes when it begins to import
TensorFlow, and when it has it.
"""

import json
import time
from pathlib import Path

FILE = Path("/runs/steps.jsonl").open("a", buffering=1)  # noqa: SIM115  until it is killed


def note(what: str) -> None:
    """Add a line."""
    FILE.write(json.dumps([time.time(), what]) + "\n")


note("begins")

import os  # noqa: E402

import made_up  # noqa: E402
import tensorflow as tf  # noqa: E402

note("has imported")


class Noted(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Has each call of TensorFlow be one step, and notes its end."""

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Note a step."""
        del batch, logs
        note("step")


by_tensorflow = os.environ["TRAINER_COLLECTIVES"] == "tensorflow"
strategy = (
    tf.distribute.MultiWorkerMirroredStrategy() if by_tensorflow else tf.distribute.get_strategy()
)
inputs, labels = made_up.batches()
with strategy.scope():
    model = made_up.network()
model.fit(inputs, labels, batch_size=made_up.BATCH, epochs=10_000, verbose=0, callbacks=[Noted()])
