"""Continues a run whose workers have other numbers than before.

A worker's folder has its number: `worker-1`. If the machines are listed in another order, or if the
first of them leaves the list, a worker looks for its run in a folder that its disk does not have.
The disk has the folder of its earlier number instead, whose files this module moves.
"""

import json
import logging
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_trainer.files import make_folder, write_whole
from cluster_trainer.fits.identity import moved_aside
from cluster_trainer.settings.job import Job

if TYPE_CHECKING:  # it imports TensorFlow, which nothing here needs
    from cluster_trainer.collectives.workers import Workers

WORKERS_FOLDER = re.compile(r"(chief|worker)-\d+")
PRESENT, TAKING = "PRESENT", "TAKING-OVER"
"""Files in a worker's folder: its token of this start, and a list of files that it still moves."""
TOKEN_BITS = 62  # small enough for a number that workers exchange
WHICH = "the workers' earlier numbers"
HAS_BEGUN, IS_NEW, HAS_ANOTHER = range(3)
log = logging.getLogger("trainer")


def take_over(
    job: Job, workers: "Workers", names_in: Callable[[Path], list[str]], *, may_take: bool
) -> Path | None:
    """Move the files of a run from the folder of this worker's earlier number to its own folder.

    All workers call this. Files are moved only if the run is new to all workers' own folders. If
    workers share a disk, they find each other's folders there, and nothing is moved.

    Args:
        job: the settings, and this worker's task.
        workers: the workers that train together.
        names_in: returns the names of the run's files in a worker's folder; empty: it has no such
            run.
        may_take: whether this worker may continue a run here.

    Returns:
        the folder from which files were moved; None: nothing was moved.

    Raises:
        OSError: a file could not be moved; the next start continues.
    """
    _finish(job.folder)
    is_new = (
        may_take and not names_in(job.folder) and not (job.folder / moved_aside.FOLDER).exists()
    )
    found = _found(job.folder, names_in) if is_new else None
    states = workers.gather(HAS_ANOTHER if found else IS_NEW if is_new else HAS_BEGUN, WHICH)
    if HAS_BEGUN in states or HAS_ANOTHER not in states:
        return None
    try:
        taken = None if _share_a_disk(job.folder, workers) else found
        if taken:
            _take(taken, job.folder, names_in(taken))
        workers.gather(0, WHICH)
    finally:
        (job.folder / PRESENT).unlink(missing_ok=True)
    return taken


def _found(folder: Path, names_in: Callable[[Path], list[str]]) -> Path | None:
    """Return the folder of another worker that has such a run, and that was changed last."""
    return max((one for one in _others(folder) if names_in(one)), key=_last_change, default=None)


def _others(folder: Path) -> list[Path]:
    """Return the folders of other workers on this disk."""
    if not folder.parent.is_dir():
        return []
    named = (one for one in folder.parent.iterdir() if WORKERS_FOLDER.fullmatch(one.name))
    return [one for one in named if one.name != folder.name and one.is_dir()]


def _last_change(folder: Path) -> float:
    return max(one.stat().st_mtime for one in folder.iterdir())


def _share_a_disk(folder: Path, workers: "Workers") -> bool:
    """Tell whether another worker of this start has its folder on this disk; all call this."""
    token = secrets.randbits(TOKEN_BITS)
    make_folder(folder)
    write_whole(folder / PRESENT, str(token).encode(), durable=False)
    tokens = {str(one) for one in workers.gather(token, WHICH)}
    return any(_token_in(one) in tokens for one in _others(folder))


def _token_in(folder: Path) -> str:
    try:
        return (folder / PRESENT).read_text()
    except (OSError, ValueError):
        return ""


def _take(source: Path, folder: Path, names: list[str]) -> None:
    log.warning(
        "this is %s now, and its disk has the run of %s: the list of workers has changed. The run "
        "continues from these files, which are moved to %s",
        *(folder.name, source.name, folder),
    )
    content = json.dumps({"from": source.name, "names": names})
    write_whole(folder / TAKING, content.encode(), durable=True)
    _finish(folder)


def _finish(folder: Path) -> None:
    """Move the remaining files, also if a process was killed while it moved them."""
    taking = folder / TAKING
    if taking.exists():
        told = json.loads(taking.read_bytes())
        moved_aside.move(folder.parent / told["from"], folder, told["names"])
        taking.unlink()
