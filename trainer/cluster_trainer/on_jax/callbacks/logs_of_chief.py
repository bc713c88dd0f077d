"""Gives the callbacks of all workers the same numbers."""

import json
from typing import Any

import keras
import numpy as np

from cluster_trainer.on_jax.workers.cluster import JaxWorkers


class LogsOfChief(keras.callbacks.Callback):
    """The first callback of a fit: the others decide by the chief's numbers, on all workers."""

    def __init__(self, workers: JaxWorkers) -> None:
        super().__init__()
        self._workers = workers

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Take the chief's numbers: processors of another kind round differently."""
        if not logs or self._workers.count == 1:
            return
        mine = json.dumps({name: np.asarray(one).tolist() for name, one in logs.items()})
        chiefs = self._workers.exchange(mine, f"the numbers of epoch {epoch + 1}")[0]
        if chiefs != mine:
            logs.update(json.loads(chiefs))
