"""Shows the progress of a run, in a line that is redrawn, or printed at intervals."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import keras

from cluster_trainer.callbacks.recording.logs import numbers_in, present_rate
from cluster_trainer.checkpoints.checkpoint import Place
from cluster_trainer.results.on_screen.progress import Progress

BETWEEN_SECONDS = 0.4
"""The shortest time between two lines; calls of about a second are shown one by one."""


class ProgressDisplay(keras.callbacks.Callback):
    """Shows the progress of a run after each call.

    Args:
        tell: gets the progress.
        place: returns the run's place before the call.
        examples_at: a function from a step to the number of training examples seen until then, or
            None if it is unknown.
        slow: returns the names of the stragglers.
        missing: returns the names of the missing workers.

    Attributes:
        speed: the examples per second of all workers; None: unknown.
        pace: the steps per second; None: not known yet.
    """

    several_batches_a_call = True

    def __init__(
        self,
        tell: Callable[[Progress], object],
        place: Callable[[], Place],
        examples_at: Callable[[int], int | None] = lambda _: None,
        slow: Callable[[], tuple[str, ...]] = tuple,
        missing: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        super().__init__()
        self._tell, self._place = tell, place
        self._slow, self._missing = slow, missing
        self._examples_at = examples_at
        self._epoch = 0
        self._told = -BETWEEN_SECONDS
        self._numbers: dict[str, float] = {}
        # Steps, and the times when they were done: the first of this start, and the last shown.
        self._first: tuple[int, float] | None = None
        self._before: tuple[int, float] | None = None
        self.speed: float | None = None
        self.pace: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        place, self._epoch = self._place(), epoch
        self._before = (place.step, time.monotonic()) if self._first else None
        if self._is_due():
            self._tell_progress("training", place.done, self.params.get("steps"), place.step)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        place, done = self._place(), batch + 1
        step = place.step - place.done + done
        self._first = self._first or (step, time.monotonic())  # the first call compiles
        if not self._is_due(done == self.params.get("steps")):
            return
        self._numbers = dict(_numbers(logs or {}))
        self._note_speed(step)
        self._tell_progress("training", done, self.params.get("steps"), step)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._is_due():
            self._tell_progress("evaluating", batch + 1, None, self._place().step)

    def _is_due(self, is_last: bool = False) -> bool:  # noqa: FBT001, FBT002
        """Tell whether to show progress now, which fetches values from a device."""
        return is_last or time.monotonic() >= self._told + BETWEEN_SECONDS

    def _note_speed(self, step: int) -> None:
        now = time.monotonic()
        if self._before and step > self._before[0]:
            seconds = max(now - self._before[1], 1e-9)
            seen, before = self._examples_at(step), self._examples_at(self._before[0])
            self.speed = None if seen is None or before is None else (seen - before) / seconds
            self.pace = (step - self._before[0]) / seconds
        self._before = step, now

    def _seconds_left(self, step: int, done: int) -> float | None:
        """Return the seconds until the end, with evaluations, at the pace so far; None: unknown."""
        epochs, steps = self.params.get("epochs"), self.params.get("steps")
        if not self._first or not epochs or not steps or step <= self._first[0]:
            return None
        seconds: float = (time.monotonic() - self._first[1]) / (step - self._first[0])
        return max(0.0, seconds * float((epochs - self._epoch) * steps - done))

    def _tell_progress(self, what: str, done: int, total: int | None, step: int) -> None:
        self._told = time.monotonic()
        self._tell(
            Progress(
                what=what,
                epoch=self._epoch + 1,
                epochs=int(self.params.get("epochs") or 0),
                done=int(done),
                step=int(step),
                total=None if total is None else int(total),
                numbers=self._numbers,
                learning_rate=present_rate(getattr(self, "model", None)),
                examples_per_second=self.speed,
                steps_per_second=self.pace,
                seconds_left=self._seconds_left(step, done),
                slow=self._slow(),
                missing=self._missing(),
            )
        )


def _numbers(logs: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the scalar numbers in a fit's logs, the loss first."""
    numbers = {name: numbers_in(value) for name, value in logs.items()}
    names = sorted(numbers, key=lambda name: name != "loss")
    found = [(name, one) for name in names if (one := numbers[name]) is not None]
    return [(name, float(one)) for name, one in found if one.ndim == 0]
