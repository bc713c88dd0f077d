"""Writes TensorBoard's files about a run while it runs: curves, and its starts.

| folder of a worker | content |
| --- | --- |
| `tensorboard/` | this worker's speed; on the chief also metrics within epochs, the rate, starts |
| `tensorboard/train/`, `test/` | on the chief: every metric of each epoch, over all examples |

Steps are counted over stops and restarts. A step that a start repeats is written again, which makes
its earlier entry invalid (results/event_file.py).
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import keras
import numpy as np

from cluster_trainer.callbacks.recording.logs import MAX_NUMBERS, numbers_in, present_rate
from cluster_trainer.checkpoints.checkpoint import Place, Stage
from cluster_trainer.engine.steps import waits_of
from cluster_trainer.results.event_file import EventFile, starts_in

FOLDER = "tensorboard"
VALIDATION = "val_"
SECONDS_BETWEEN = 0.9  # at least: calls of about a second are written one by one


@dataclass(frozen=True)
class Shown:
    """The data of a run for TensorBoard.

    Attributes:
        place: returns the run's place.
        checkpoints: returns facts about the newest checkpoint: name -> its step, and seconds.
        examples_at: a function from a step to the number of training examples seen until then;
            None: unknown.
        start: returns a description of this start, as Markdown.
        num_workers: the number of workers that share the examples.
        is_chief: whether this worker writes the values that are the same on all workers.
        histograms: whether to write histograms of the weights.
        at_work: returns the fraction of the time in which this worker was busy; None: unknown.
        slow: returns why this worker is a straggler; "" if it is not.
        network: returns why the network limits training; "" if it does not.
    """

    place: Callable[[], Place]
    checkpoints: Callable[[], Mapping[str, tuple[int, float]]]
    examples_at: Callable[[int], int] | None
    start: Callable[[], str]
    num_workers: int = 1
    is_chief: bool = True
    histograms: bool = False
    at_work: Callable[[], float | None] = lambda: None
    slow: Callable[[], str] = lambda: ""
    network: Callable[[], str] = lambda: ""


class TensorBoard(keras.callbacks.Callback):
    """Writes event files, about once a second and after each epoch, without communication.

    A file is created when it is first written to, and is open only while it is written to.

    Args:
        folder: this worker's own folder for event files.
        shown: the data to write.
    """

    several_batches_a_call = True

    def __init__(self, folder: Path, shown: Shown) -> None:
        super().__init__()
        self._folder, self._shown = folder, shown
        self._own: EventFile | None = None
        self._parts: dict[str, EventFile] = {}
        self._start = ""
        self._begins_at = 0  # from this step on, values from earlier starts are invalid
        self._call_began = 0.0
        self._written = -inf  # so that the first call is written, even just after a boot
        self._seconds = 0.0  # of the calls since the last write
        self._waits: Mapping[str, float] = {}  # the waiting times until the last write
        self._began = self._step = 0  # the step at the start, and at the last write
        self._saved: dict[str, int] = {}
        self._reasons: dict[str, str] = {}  # tag -> the present reason
        self._logs: Mapping[str, Any] | None = None  # of the last finished call

    def on_train_begin(self, logs: Any = None) -> None:
        place = self._shown.place()
        if self._shown.is_chief:
            self._start = self._shown.start()
        self._began = self._step = place.step
        # The numbers of a finished epoch are written before the checkpoint that records its end.
        self._begins_at = place.step + (place.stage in (Stage.EPOCH, Stage.ALL))
        self._waits = waits_of(self.model)  # an earlier fit of the same model has counted, too

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Write the results of the previous call: by now its number of steps is known."""
        self._note()
        self._call_began = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._seconds += time.monotonic() - self._call_began
        self._logs = logs or {}

    def on_test_begin(self, logs: Any = None) -> None:
        self._note()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._note()
        if not self._shown.is_chief:
            return
        step = self._shown.place().step
        values = dict(_numbers(logs or {}))
        tests = {name for name in values if name.startswith(VALIDATION)}
        self._write_epoch("train", {name: values[name] for name in values.keys() - tests}, step)
        self._write_epoch("test", {name[len(VALIDATION) :]: values[name] for name in tests}, step)
        if self._shown.histograms:
            self._write_weights(step)

    def on_train_end(self, logs: Any = None) -> None:
        self._note(is_last=True)

    def _note(self, *, is_last: bool = False) -> None:
        """Write the results of the calls since the last write, unless that was very recently."""
        now, step, logs = time.monotonic(), self._shown.place().step, self._logs
        if logs is None or step <= self._step:
            return
        if now - self._written < SECONDS_BETWEEN and not is_last:
            return
        values = self._speed(step)
        if self._shown.is_chief:
            values |= {f"within_epoch/{name}": value for name, value in _numbers(logs)}
            values |= _learning_rate(self.model)
        own = self._own = self._own or self._begin()
        own.scalars(values, step)
        self._write_checkpoints(own)
        self._write_reason("slow", self._shown.slow(), "no longer holds the others up", step)
        self._write_reason("network", self._shown.network(), "no longer the limit", step)
        self._written, self._step, self._seconds = now, step, 0.0

    def _begin(self) -> EventFile:
        """Return this worker's own file; on the chief, write the description of this start."""
        starts = starts_in(self._folder)
        own = EventFile(self._folder, begins_at=self._began + 1)
        if self._shown.is_chief:
            # At step 0, so that repeated steps do not replace it.
            own.text(f"starts/{starts + 1}", self._start, step=0)
        return own

    def _part(self, part: str) -> EventFile:
        if part not in self._parts:
            self._parts[part] = EventFile(self._folder / part, begins_at=self._begins_at)
        return self._parts[part]

    def _speed(self, step: int) -> dict[str, float]:
        seconds = max(self._seconds, 1e-9)
        steps, before = step - self._step, self._waits
        speed = {"speed/seconds_per_step": seconds / steps}
        self._waits = waits_of(self.model)
        waited = {name: total - before.get(name, 0.0) for name, total in self._waits.items()}
        if waited:
            waited["computing"] = max(0.0, seconds - sum(waited.values()))
        for name, one in waited.items():
            speed[f"speed/seconds_of_{name}_per_step"] = one / steps
        if self._shown.examples_at:
            examples = self._shown.examples_at(step) - self._shown.examples_at(self._step)
            share = examples / self._shown.num_workers
            speed["speed/examples_per_second"] = share / seconds
            if self._shown.is_chief:
                speed["speed/examples_per_second_of_all"] = examples / seconds
        if (part := self._shown.at_work()) is not None:
            speed["speed/at_work"] = part
        return speed

    def _write_checkpoints(self, file: EventFile) -> None:
        for name, (step, seconds) in self._shown.checkpoints().items():
            if step > self._saved.get(name, self._began):
                file.scalars({f"checkpoints/{name}": seconds}, step)
                self._saved[name] = step

    def _write_reason(self, tag: str, reason: str, otherwise: str, step: int) -> None:
        """Write a reason when it begins to hold, and `otherwise` when it no longer does."""
        before, self._reasons[tag] = self._reasons.get(tag, ""), reason
        if self._own and bool(reason) != bool(before):
            self._own.text(tag, reason or otherwise, step)

    def _write_epoch(self, part: str, values: Mapping[str, float], step: int) -> None:
        if values:
            named = {f"epoch/{name}": values[name] for name in sorted(values)}
            self._part(part).scalars(named, step)

    def _write_weights(self, step: int) -> None:
        for variable in self.model.weights:
            values = np.asarray(keras.ops.convert_to_numpy(variable), np.float64)
            if values.size and np.isfinite(values).all():
                self._part("train").histogram(f"weights/{variable.path}", values, step)


def _numbers(logs: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers in a fit's logs; the numbers in a short array one by one."""
    for name, value in logs.items():
        array = numbers_in(value)
        if array is None or not isinstance(name, str):  # a callback may add anything
            continue
        if array.ndim == 0:
            yield name, float(array)
        elif array.size <= MAX_NUMBERS:
            yield from ((f"{name}_{index}", float(one)) for index, one in enumerate(array.flat))


def _learning_rate(model: keras.Model) -> dict[str, float]:
    rate = present_rate(model)
    return {} if rate is None else {"learning_rate": rate}
