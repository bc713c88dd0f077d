"""Collects the results of each epoch: one line of numbers, with every metric of the model."""

import time
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any

import keras
import numpy as np

from cluster_trainer.callbacks.recording.logs import MAX_NUMBERS, numbers_in
from cluster_trainer.checkpoints.checkpoint import Place
from cluster_trainer.results.metrics_file import COUNTS

Line = dict[str, Any]
VALIDATION, TEST = "val_", "test_"


class EpochMetrics(keras.callbacks.Callback):
    """Collects the epochs' numbers, over stops and restarts, and reports them.

    A line has these members:

    - `epoch` and `step`, both counted from 1;
    - `loss` and every metric of the model, over the epoch's examples;
    - `test_loss` and every metric as `test_…`, over the test examples;
    - `test_examples`, and `examples_per_second` of training, if these can be counted;
    - `seconds` of the whole epoch.

    A number that is not finite is None. Values that are not numbers are omitted. If a metric has
    the name of another member of the line, `_` is appended, once or several times. If a metric is
    named `test_…`, but is not about the test examples, `_` is prepended.

    Args:
        place: returns the run's place.
        examples_at: a function from a step to the number of training examples seen until then;
            None: unknown.
        test_examples: the number of test examples; None: unknown, or none.
        report: is called with all lines so far, and with whether the last of them is new.
    """

    several_batches_a_call = True
    growing = ("lines",)

    def __init__(
        self,
        place: Callable[[], Place],
        examples_at: Callable[[int], int] | None,
        test_examples: int | None,
        report: Callable[[list[Line], bool], None],
    ) -> None:
        super().__init__()
        self._place, self._examples_at, self._report = place, examples_at, report
        self._test_examples = test_examples
        self.lines: list[Line] = []
        self._seconds = 0.0  # of the epoch, until `_counted`
        self._trained_seconds: float | None = None
        self._first = 0  # the step at which the first line's epoch began
        self._counted = time.monotonic()

    def get_state(self) -> dict[str, Any]:
        self._count()
        return {
            "lines": self.lines,
            "first": self._first,
            "seconds": self._seconds,
            "trained_seconds": self._trained_seconds,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.lines = list(state["lines"])
        self._seconds, self._trained_seconds = state["seconds"], state["trained_seconds"]
        self._first = state.get("first", 0)
        self._counted = time.monotonic()
        self._report(self.lines, False)  # noqa: FBT003

    def on_train_begin(self, logs: Any = None) -> None:
        self._first = self._place().step
        self._counted = time.monotonic()

    def on_test_begin(self, logs: Any = None) -> None:
        self._count()
        self._trained_seconds = self._seconds

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._count()
        step = self._place().step
        self.lines.append(
            {
                "epoch": epoch + 1,
                "step": step,
                **_named(logs or {}),
                **self._counts(step),
                "seconds": round(self._seconds, 3),
            }
        )
        self._seconds, self._trained_seconds = 0.0, None
        self._report(self.lines, True)  # noqa: FBT003

    def _counts(self, step: int) -> Line:
        counts: Line = {}
        if self._test_examples is not None:
            counts["test_examples"] = self._test_examples
        if self._examples_at:
            before = self.lines[-1]["step"] if self.lines else self._first
            examples = self._examples_at(step) - self._examples_at(before)
            trained = self._trained_seconds or self._seconds
            counts["examples_per_second"] = round(examples / max(trained, 1e-9), 1)
        return counts

    def _count(self) -> None:
        """Add the time since the last call of this, including checkpoints."""
        before, self._counted = self._counted, time.monotonic()
        self._seconds += self._counted - before


def _named(logs: Mapping[str, Any]) -> Line:
    """Return an epoch's logs with the losses first, and those of the test examples last."""
    found = {name: numbers_in(value) for name, value in logs.items() if isinstance(name, str)}
    numbers = {
        name: one for name, one in found.items() if one is not None and one.size <= MAX_NUMBERS
    }
    called = _called(numbers)
    ordered = sorted(numbers, key=lambda name: (_is_test(name), not _is_loss(name)))
    return {called[name]: _number(numbers[name]) for name in ordered}


def _called(names: Iterable[str]) -> dict[str, str]:
    """Return a unique name in a line for each metric, unchanged if possible."""
    wanted = {name: _in_line(name) for name in names}
    taken = {*COUNTS}
    for name in sorted(wanted, key=lambda name: wanted[name] in COUNTS or name.startswith(TEST)):
        while wanted[name] in taken:
            wanted[name] += "_"
        taken.add(wanted[name])
    return wanted


def _in_line(name: str) -> str:
    """Return a metric's name in a line, where `test_` is reserved for the test examples."""
    if _is_test(name):
        return TEST + name.removeprefix(VALIDATION)
    return f"_{name}" if name.startswith(TEST) else name


def _is_loss(name: str) -> bool:
    return name.removeprefix(VALIDATION) == "loss"


def _is_test(name: str) -> bool:
    return name.startswith(VALIDATION)


def _number(numbers: np.ndarray) -> Any:
    if numbers.ndim:
        return [_number(one) for one in numbers]
    number = numbers.item()
    return number if not isinstance(number, float) or isfinite(number) else None
