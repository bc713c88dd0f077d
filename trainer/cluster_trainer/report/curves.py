"""Reads the numbers in a worker's event files, with their time and step."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from cluster_trainer.report.forms import is_number
from cluster_trainer.report.reading import FileReader, shown
from cluster_trainer.results.journal import is_time

WITHOUT_TENSORFLOW = "tensorboard.compat.notf"  # like tensorboard_server.py
PATTERN = "events.out.tfevents.*"
TENSORBOARD = "tensorboard"


class Point(NamedTuple):
    """A number of an event file; `time` is in seconds since 1970."""

    time: float
    step: int
    value: float


Curves = Mapping[str, Sequence[Point]]


def joined(parts: Iterable[Curves | None]) -> Curves | None:
    """Merge several sets of curves, with the points of each curve by time; None: there are none."""
    found: dict[str, list[Point]] = {}
    for curves in parts:
        for tag, points in (curves or {}).items():
            found.setdefault(tag, []).extend(points)
    return {tag: sorted(points) for tag, points in found.items()} or None


def read_curves(folder: Path, reading: FileReader) -> Curves | None:
    """Return the numbers in a folder's event files, by tag; None: there are none."""
    try:
        if not any(folder.glob(PATTERN)):
            return None
        found = _read(folder)
    except Exception as error:  # noqa: BLE001  the library may raise anything at a broken file
        reading.note(folder, f"the event files cannot be read: {shown(str(error))}")
        return None
    curves = {tag: [one for one in points if _is_one(one)] for tag, points in found.items()}
    for tag, points in found.items():
        if left := len(points) - len(curves[tag]):
            reading.note(folder, f"{shown(tag)}: {left} points are no finite numbers")
    return curves


def _read(folder: Path) -> Curves:
    sys.modules.setdefault(WITHOUT_TENSORFLOW, ModuleType(WITHOUT_TENSORFLOW))
    from tensorboard.backend.event_processing import event_accumulator  # noqa: PLC0415  it is slow

    files = event_accumulator.EventAccumulator(str(folder), {"scalars": 0})
    files.Reload()
    return {
        tag: [Point(one.wall_time, one.step, one.value) for one in files.Scalars(tag)]
        for tag in files.Tags()["scalars"]
    }


def _is_one(point: Point) -> bool:
    return is_time(point.time) and is_number(point.value)
