"""Ends a run whose loss is not finite, because no further step could repair it."""

from collections.abc import Callable
from math import isfinite
from typing import Any

import keras

from cluster_trainer.checkpoints.checkpoint import Place
from cluster_trainer.problems import TrainingDivergedError


class Divergence(keras.callbacks.Callback):
    """Ends a run before a checkpoint is made of weights that are not finite.

    Args:
        place: returns the run's place before the call.
    """

    several_batches_a_call = True

    def __init__(self, place: Callable[[], Place]) -> None:
        super().__init__()
        self._place = place

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Check the loss, which is the same on all workers.

        Raises:
            TrainingDivergedError: the loss is not finite.
        """
        loss = float((logs or {}).get("loss", 0.0))
        if not isfinite(loss):
            place = self._place()
            step = place.step - place.done + batch + 1
            raise TrainingDivergedError(f"the loss is {loss} after step {step}")
