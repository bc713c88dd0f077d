"""What a run is at, for the line that is said once nothing else was for a while."""

from collections.abc import Callable
from typing import Any, Protocol

import keras

from cluster_trainer.callbacks.keeper import Place


class Listener(Protocol):
    """Who says it."""

    def doing(self, what: str) -> None:
        """Note what the run is at."""

    def step(self, step: int) -> None:
        """Note that so many steps of training are behind it."""


class Heartbeat(keras.callbacks.Callback):
    """Tells after each call where the run is.

    Args:
        listener: is told.
        place: tells where it was before the call.
    """

    several_batches_a_call = True

    def __init__(self, listener: Listener, place: Callable[[], Place]) -> None:
        super().__init__()
        self._listener, self._place = listener, place
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note an epoch's number."""
        del logs
        self._epoch = epoch
        self._say("training", self._place().done)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note how far the epoch is."""
        del logs
        place = self._place()
        self._listener.step(place.step - place.done + batch + 1)
        self._say("training", batch + 1, self.params.get("steps"))

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note how far its evaluation is."""
        del logs
        self._say("evaluating", batch + 1)

    def _say(self, what: str, done: int, total: int | None = None) -> None:
        epochs = self.params.get("epochs")
        of = f" of {total}" if total else ""
        self._listener.doing(f"epoch {self._epoch + 1}/{epochs}  {what}: {done}{of} steps")
