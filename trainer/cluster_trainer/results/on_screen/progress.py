"""The progress of a run: as a line for people, and as a file for a program that draws it."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cluster_trainer.files import write_whole

SMALL, MANY = 0.001, 100
MINUTE, HOUR = 60, 3600


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes:
        what: "training" or "evaluating".
        epoch: the current epoch, from 1.
        epochs: the number of epochs of the run.
        done: the number of steps done in the epoch, or in its evaluation.
        total: the number of all steps in it; None: unknown.
        numbers: the loss and the metrics so far in the epoch, by name. At its beginning they are
            the previous epoch's.
        learning_rate: the learning rate of the next step; None: unknown.
        examples_per_second: the speed of all workers; None: unknown.
        steps_per_second: the speed in steps, for data whose examples are not counted; None:
            unknown.
        seconds_left: the time until the last epoch ends, at the pace so far; None: unknown.
        slow: the names of the stragglers.
        missing: the names of the missing workers, if the others continue without them.
        step: the number of training steps done, over all epochs.
    """

    what: str
    epoch: int
    epochs: int
    done: int
    total: int | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    learning_rate: float | None = None
    examples_per_second: float | None = None
    steps_per_second: float | None = None
    seconds_left: float | None = None
    slow: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    step: int = 0

    @property
    def place(self) -> str:
        """Epoch and step in words."""
        of = f" of {self.total}" if self.total else ""
        steps = "step" if (self.total or self.done) == 1 else "steps"
        return f"epoch {self.epoch}/{self.epochs}  {self.what}: {self.done}{of} {steps}"

    @property
    def facts(self) -> list[str]:
        """All other facts in words, the least important last: a narrow terminal cuts them off."""
        parts = [f"without {', '.join(self.missing)}"] if self.missing else []
        parts += [f"slow: {', '.join(self.slow)}"] if self.slow else []
        if self.seconds_left is not None:
            parts.append(f"{clock(self.seconds_left)} left")
        parts += [f"{name.replace('_', ' ')} {shown(one)}" for name, one in self.numbers.items()]
        if self.examples_per_second is not None:
            parts.append(f"{self.examples_per_second:,.0f} examples/s")
        elif self.steps_per_second is not None:
            speed = self.steps_per_second
            parts.append(f"{speed:,.0f} steps/s" if speed >= MANY else f"{speed:.3g} steps/s")
        if self.learning_rate is not None:
            parts.append(f"rate {shown(self.learning_rate)}")
        return parts

    def __str__(self) -> str:
        return "  ".join([self.place, *self.facts])


class LiveFile:
    """A small file with the progress of a run. If it cannot be written, nothing happens.

    Args:
        path: the file; None: it is not written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(self, progress: Progress) -> None:
        """Write the members of Progress as JSON, and `facts`, a list of strings."""
        if self._path is None:
            return
        members = {**asdict(progress), "facts": progress.facts}
        with suppress(OSError, ValueError):
            write_whole(self._path, json.dumps(members, default=str).encode(), durable=False)

    def remove(self) -> None:
        """Remove the file."""
        if self._path:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


def shown(value: Any) -> str:
    """Return a metric as text for people."""
    if not isinstance(value, float):
        return "not finite" if value is None else str(value)
    is_small = 0 < abs(value) < SMALL
    return f"{value:.1e}" if is_small else f"{value:.4f}"


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss, or m:ss."""
    whole = round(seconds)
    minutes = f"{whole % HOUR // MINUTE}:{whole % MINUTE:02d}"
    return minutes if whole < HOUR else f"{whole // HOUR}:{minutes.zfill(5)}"
