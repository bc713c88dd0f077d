"""Marks that a script has ended well, so that its next start begins a new run.

A process cannot know its own exit code: exit handlers also run after `sys.exit(1)`, and forked
processes run none. So after each fit that ends well, the mark is written under a provisional name.
The entrypoint knows the command's exit code, and renames the mark after code 0 (END_MARKS). Without
an entrypoint, an exit handler writes the mark.
"""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_trainer.files import write_whole

if TYPE_CHECKING:  # it imports TensorFlow, which nothing here needs
    from cluster_trainer.collectives.workers import Workers

VARIABLE = "END_MARKS"
"""The entrypoint's variable: a file that lists marks, one path per line. See
`entrypoint/supervision`."""
FILE, PENDING = "ENDED", ".pending"
BEGINNING = "the first fit"
log = logging.getLogger("trainer")


def await_end(folder: Path, workers: "Workers", environ: Mapping[str, str]) -> None:
    """Write a provisional mark, which the entrypoint makes final if the command exits with 0.

    Args:
        folder: the worker's own folder.
        workers: the workers that train together; some may be missing (MIN_WORKERS).
        environ: the environment. Without END_MARKS, nothing is written.
    """
    if marks := environ.get(VARIABLE):
        pending = folder / f"{FILE}{PENDING}"
        _write(pending, workers)
        _list(pending, Path(marks))


def await_nothing(folder: Path) -> None:
    """Remove the provisional mark, because another fit begins, which may fail."""
    with suppress(OSError):
        (folder / f"{FILE}{PENDING}").unlink(missing_ok=True)


def mark(folder: Path, workers: "Workers", environ: Mapping[str, str]) -> None:
    """Write the final mark at the end of a script without an entrypoint; see `await_end`."""
    if not environ.get(VARIABLE):
        _write(folder / FILE, workers)


def _list(pending: Path, marks: Path) -> None:
    """Add a mark to the entrypoint's list, unless it is listed already."""
    try:
        with marks.open("a+") as listed:
            listed.seek(0)
            if f"{pending}\n" not in listed.readlines():
                listed.write(f"{pending}\n")
    except OSError as error:
        log.warning("the script's end could not be announced in %s: %s", marks, error)


def _write(file: Path, workers: "Workers") -> None:
    try:
        write_whole(file, json.dumps(workers.members).encode(), durable=False)
    except OSError as error:
        log.warning("the script's end could not be noted in %s: %s", file.parent, error)


class Trace(IntEnum):
    """The state of the script according to a worker's folder."""

    NONE = 0  # as on a new disk
    BEGUN = 1
    ENDED = 2


def has_ended(folder: Path, workers: "Workers", *, is_new: bool) -> bool:
    """Tell whether the script has ended on all workers that took part; all workers call this.

    Each mark lists the workers that took part (MIN_WORKERS). A worker that was missing does not
    count, and neither does a worker that has lost its disk since.

    Args:
        folder: the worker's own folder.
        workers: the workers that train together.
        is_new: whether the folder has nothing from an earlier start.
    """
    file = folder / FILE
    trace = Trace.ENDED if file.exists() else Trace.NONE if is_new else Trace.BEGUN
    traces = workers.gather(trace, BEGINNING)
    if Trace.ENDED not in traces:
        return False
    holder = traces.index(Trace.ENDED)
    text = workers.broadcast(
        file.read_bytes() if workers.rank == holder else None, holder, BEGINNING
    )
    members = json.loads(text) if text.strip() else workers.members  # from an earlier version: all
    places = zip(workers.members, traces, strict=True)
    return not any(trace == Trace.BEGUN for place, trace in places if place in members)


def forget(folder: Path, workers: "Workers", *, keeps: bool) -> None:
    """Remove the mark once all workers have read theirs; all workers call this.

    If a worker is killed before that, the next start begins a new run again.

    Args:
        folder: the worker's own folder.
        workers: the workers that train together.
        keeps: whether this process saves its fits there; only such a process removes the mark.
    """
    workers.gather(0, BEGINNING)
    if keeps:
        (folder / FILE).unlink(missing_ok=True)
