"""Reports the progress of a fit for `status`."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import keras

from cluster_trainer.checkpoints.checkpoint import Place
from cluster_trainer.results.status_file import StatusFile

LEAST_SECONDS = 600.0
TIMES_THE_LONGEST = 20.0


class ProgressReport(keras.callbacks.Callback):
    """Reports the step and the epoch after each call, and the time by which the next report is due.

    There is such a time only within an epoch. It is ten minutes plus twenty times the longest call
    so far, which is more than the limit that ends a call (`process/stall.py`). Compilation and
    activities between two epochs have no limit.

    Args:
        teller: gets the reports.
        place: returns the fit's place before the call.
        has_limit: whether calls have a time limit.
        more: returns further values for `status`, by StatusFile's names.
    """

    several_batches_a_call = True

    def __init__(
        self,
        teller: StatusFile,
        place: Callable[[], Place],
        *,
        has_limit: bool,
        more: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        super().__init__()
        self._more = more
        self._teller, self._place, self._has_limit = teller, place, has_limit
        self._epoch, self._longest = 0, 0.0
        self._last: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch, self._last = epoch, None
        self._tell("", step=self._place().step)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        place, now = self._place(), time.monotonic()
        if self._last is not None:
            self._longest = max(self._longest, now - self._last)
        self._last = now
        of = f" of {total}" if (total := self.params.get("steps")) else ""
        limit = LEAST_SECONDS + TIMES_THE_LONGEST * self._longest if self._has_limit else None
        step = place.step - place.done + batch + 1
        self._tell(f": {batch + 1}{of} steps", step=step, within_seconds=limit, at_once=False)

    def on_test_begin(self, logs: Any = None) -> None:
        self._tell(": evaluating", step=self._place().step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Report that the next activity has no limit; called after all other callbacks."""
        self._tell(" is done", step=self._place().step)

    def on_train_end(self, logs: Any = None) -> None:
        """Report that the fit is over; the process may continue."""
        self._teller.tell("running", "the fit is done")

    def _tell(self, detail: str, *, at_once: bool = True, **given: Any) -> None:
        epochs = self.params.get("epochs")
        what = f"epoch {self._epoch + 1}/{epochs}{detail}"
        place = {"epoch": self._epoch + 1, "epochs": epochs}
        self._teller.tell("training", what, at_once=at_once, **place, **given, **self._more())
