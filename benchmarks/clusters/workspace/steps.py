"""Records the end of each step, to measure the cost of a killed worker.

/runs/steps.jsonl has one line for each event: [seconds since 1970, event]. A start records the
beginning and the end of the import of TensorFlow.
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
    """Limits each call into TensorFlow to one step, and records its end."""

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Record a step."""
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
