"""The numbers of a worker's event files: when, at which step, how much."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

WITHOUT_TENSORFLOW = "tensorboard.compat.notf"  # as tensorboard_server.py has it
PATTERN = "events.out.tfevents.*"


class Point(NamedTuple):
    """A number of an event file; `time` is in seconds since 1970."""

    time: float
    step: int
    value: float


Curves = Mapping[str, Sequence[Point]]


def read_curves(folder: Path) -> Curves | None:
    """Return the numbers in a folder by their tags, each step once; None where there are none."""
    if not any(folder.glob(PATTERN)):
        return None
    sys.modules.setdefault(WITHOUT_TENSORFLOW, ModuleType(WITHOUT_TENSORFLOW))
    from tensorboard.backend.event_processing import event_accumulator  # noqa: PLC0415  it is slow

    files = event_accumulator.EventAccumulator(str(folder), {"scalars": 0})
    files.Reload()
    return {
        tag: [Point(one.wall_time, one.step, one.value) for one in files.Scalars(tag)]
        for tag in files.Tags()["scalars"]
    }
