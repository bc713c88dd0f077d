"""The mark of a script that has ended well: its next start begins anew.

A process cannot know with which code it ends: `sys.exit(1)` looks like an end to what runs at exit,
and a process that a script has forked runs nothing at exit. So after each fit that ends well the
mark is there under another name, and the entrypoint, which knows the command's exit code, gives it
its own name after code 0 (END_MARKS). Without an entrypoint what runs at exit does so.
"""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cluster_trainer.collectives.workers import Workers
from cluster_trainer.files import write_whole

VARIABLE = "END_MARKS"
"""The entrypoint's: a file that lists marks, one path a line. See `entrypoint/supervision`."""
FILE, PENDING = "ENDED", ".pending"
BEGINNING = "the first fit"
log = logging.getLogger("trainer")


def await_end(folder: Path, workers: Workers, environ: Mapping[str, str]) -> None:
    """Let the entrypoint mark the end, if the command ends with 0 and no other fit begins.

    Args:
        folder: the worker's own.
        workers: this one and the others: those who were there (MIN_WORKERS).
        environ: END_MARKS; without it nothing is done.
    """
    if marks := environ.get(VARIABLE):
        pending = folder / f"{FILE}{PENDING}"
        _write(pending, workers)
        _list(pending, Path(marks))


def await_nothing(folder: Path) -> None:
    """Let the end that comes be none: a fit has begun, or has failed."""
    with suppress(OSError):
        (folder / f"{FILE}{PENDING}").unlink(missing_ok=True)


def mark(folder: Path, workers: Workers, environ: Mapping[str, str]) -> None:
    """Mark the end at the exit of a script that no entrypoint has started; see `await_end`."""
    if not environ.get(VARIABLE):
        _write(folder / FILE, workers)


def _list(pending: Path, marks: Path) -> None:
    """Add a mark to those that the entrypoint looks at, unless it is there."""
    try:
        with marks.open("a+") as listed:
            listed.seek(0)
            if f"{pending}\n" not in listed.readlines():
                listed.write(f"{pending}\n")
    except OSError as error:
        log.warning("the script's end could not be announced in %s: %s", marks, error)


def _write(file: Path, workers: Workers) -> None:
    try:
        write_whole(file, json.dumps(workers.members).encode(), durable=False)
    except OSError as error:
        log.warning("the script's end could not be noted in %s: %s", file.parent, error)


def has_ended(folder: Path, workers: Workers) -> bool:
    """Tell whether the script has ended on all workers that were there; all workers call it.

    The chief's mark says who that was: those who were missing have none.
    """
    file = folder / FILE
    have_mark = workers.gather(int(file.exists()), BEGINNING)
    if not have_mark[0]:
        return False
    text = workers.broadcast(file.read_bytes() if workers.rank == 0 else None, 0, BEGINNING)
    members = json.loads(text) if text.strip() else workers.members  # of an earlier version: all
    of_members = [
        one for place, one in zip(workers.members, have_mark, strict=True) if place in members
    ]
    return all(of_members)


def forget(folder: Path, workers: Workers) -> None:
    """Remove the mark, once all workers have seen theirs; all of them call it.

    One that is killed before that begins anew again, as all the others do.
    """
    workers.gather(0, BEGINNING)
    (folder / FILE).unlink(missing_ok=True)
