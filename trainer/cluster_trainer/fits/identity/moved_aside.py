"""Moves aside the files of earlier runs in a worker's folder, instead of removing them."""

import json
import logging
import re
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cluster_trainer.files import make_folder, write_whole

FOLDER, UNFINISHED = "earlier", "UNFINISHED"
"""A file in an earlier run's folder that lists all names to move, until everything is moved."""
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
OF_A_RUN = re.compile(r"\d{8}-\d{6}(-|$)")
LONGEST_LABEL = 100
log = logging.getLogger("trainer")


def move_aside(folder: Path, names: Sequence[str], label: str, began: float) -> Path | None:
    """Move the files of an earlier run into their own folder: `earlier/20261125-101500-train`.

    Call `finish` first.

    Args:
        folder: the worker's own folder.
        names: the names of the run's files and folders; missing ones are ignored.
        label: a name for the run, such as its script's.
        began: the time when the run began, in seconds since 1970.

    Returns:
        the new folder; None: there was nothing to move.

    Raises:
        OSError: a file could not be moved; each file is still in one of the two places.
    """
    found = [name for name in names if (folder / name).exists()]
    if not found:
        return None
    place = _new_folder(folder / FOLDER, label, began)
    write_whole(place / UNFINISHED, json.dumps(found).encode(), durable=True)
    move(folder, place, found)
    (place / UNFINISHED).unlink()
    return place


def finish(folder: Path) -> None:
    """Move the remaining files if a process was killed while it moved them aside.

    Args:
        folder: the worker's own folder.

    Raises:
        OSError: a file could not be moved.
    """
    for unfinished in sorted(folder.glob(f"{FOLDER}/*/{UNFINISHED}")):
        log.info(
            "moving the remaining files of an earlier start to %s, where the others are",
            unfinished.parent,
        )
        move(folder, unfinished.parent, json.loads(unfinished.read_bytes()))
        unfinished.unlink()


def move(folder: Path, place: Path, names: Sequence[str]) -> None:
    """Move files from a folder to another one; missing ones are ignored.

    Raises:
        OSError: a file could not be moved; each file is still in one of the two places.
    """
    for name in names:
        if not (folder / name).exists():
            continue
        # A mounted bucket may not support renaming. Then a file may be in both places, and only
        # one of the copies may be complete.
        target = place / name
        shutil.move(folder / name, target.with_name(f"{name}-again") if target.exists() else target)


def _new_folder(parent: Path, label: str, began: float) -> Path:
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(began))
    name = f"{moment}-{NOT_IN_A_NAME.sub('_', label)[:LONGEST_LABEL]}".rstrip("-")
    make_folder(parent)
    for number in range(1, 10_000):
        place = parent / (name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            place.mkdir()
            return place
    raise FileExistsError(str(parent / name))


def keep_newest(folder: Path, most: int | None) -> None:
    """Remove the oldest earlier runs, if the user has limited their number.

    Args:
        folder: the worker's own folder.
        most: the number of runs to keep; None: all.
    """
    if most is None:
        return
    with suppress(OSError):
        there = sorted(one for one in (folder / FOLDER).iterdir() if OF_A_RUN.match(one.name))
        for one in there[: max(0, len(there) - most)]:
            log.info("removing %s: TRAINER_KEEP_EARLIER is %d", one, most)
            shutil.rmtree(one, ignore_errors=True)
