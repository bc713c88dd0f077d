"""Gives the callbacks of all workers the same logs."""

import json
from typing import Any

import keras
import numpy as np

from cluster_trainer.on_jax.workers.cluster import JaxWorkers


class LogsOfChief(keras.callbacks.Callback):
    """The first callback of a fit: gives all others the chief's logs, so that all decide alike."""

    def __init__(self, workers: JaxWorkers) -> None:
        super().__init__()
        self._workers = workers

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Replace the logs by the chief's, because other processors may round differently."""
        if not logs or self._workers.count == 1:
            return
        mine = json.dumps({name: np.asarray(one).tolist() for name, one in logs.items()})
        chiefs = self._workers.exchange(mine, f"the numbers of epoch {epoch + 1}")[0]
        if chiefs != mine:
            logs.update(json.loads(chiefs))
