"""Decides which process of a start saves its fits: the first that calls one, and no other.

A script may start further processes that train, for example one for each seed. All of them have the
same folder. A fit is identified by the place of its call in the script, which is the same in all
these processes. So without an owner, a process would get the result of another's training.
"""

import fcntl
import json
import logging
import os
import sys
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from cluster_trainer.files import make_folder, write_whole
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.job import Job

START = "START_ID"
"""The entrypoint's variable that distinguishes one start of the command from all others."""
LOCK, FILE = "LOCK", "OWNER.json"
HOLDER_SECONDS, LOOK_SECONDS = 3.0, 0.05
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Owner:
    """The process that saves, or has saved, its fits in a worker's folder.

    Attributes:
        start: the START_ID with which it was started; empty without an entrypoint.
        script: the name of its script's file.
        began: the time when the script began in this folder, in seconds since 1970.
        pid: its process id.
    """

    start: str
    script: str
    began: float
    pid: int


@dataclass(frozen=True)
class Claim:
    """Whether a process may save its fits in a folder.

    Attributes:
        before: the process that has saved fits there before; None: none is known.
        other: the process of the same start that saves its fits there; None: this process does.
    """

    before: Owner | None = None
    other: Owner | None = None


def claimed(
    job: Job, mine: Owner, locks: MutableMapping[Path, IO[str]]
) -> tuple[Job, Owner | None]:
    """Take the worker's folder; if another process of this start has it, save nothing.

    Args:
        job: the settings, and this worker's task.
        mine: the identity of this process.
        locks: see `claim`.

    Returns:
        the settings, and the folder's earlier owner; None: none is known.

    Raises:
        ConfigurationError: a process of another start trains into the folder.
    """
    if not job.config.checkpoint_steps:
        return job, None
    found = claim(job.folder, mine, locks)
    if found.other is None:
        return job, found.before
    log.warning(
        "the fits of this process (%s, %d) are not saved: only the first process of a start saves "
        "its fits, and that was %s, %d. After a restart this one trains from the beginning",
        mine.script,
        mine.pid,
        found.other.script,
        found.other.pid,
    )
    config = job.config.model_copy(update={"checkpoint_steps": 0})
    return replace(job, config=config), found.before


def claim(folder: Path, mine: Owner, locks: MutableMapping[Path, IO[str]]) -> Claim:
    """Take a folder, unless another process of the same start has it, or had it.

    Args:
        folder: the worker's own folder; it is created if necessary.
        mine: the identity of this process.
        locks: this process's locks by folder, to which the lock is added; the process owns the
            folder as long as it is there. A process that may not save its fits can still hold a
            lock, by the lock file's path.

    Raises:
        ConfigurationError: a process of another start trains into the folder.
        OSError: the folder cannot be written.
    """
    make_folder(folder)
    if folder in locks:  # by another kind of fit
        return Claim()
    lock = (folder / LOCK).open("a")
    is_free = _is_free(lock, folder)
    before = read(folder) if is_free else _holder(folder, mine.start)
    if before and mine.start and before.start == mine.start:
        if is_free:  # no other start may begin there as long as this one trains
            locks[folder / LOCK] = lock
        else:
            lock.close()
        return Claim(before, before)
    if not is_free:
        lock.close()
        raise ConfigurationError([_taken(folder)])
    goes_on = before is not None and before.script == mine.script
    write(folder, replace(mine, began=before.began) if before and goes_on else mine)
    locks[folder] = lock
    return Claim(before)


def _is_free(lock: IO[str], folder: Path) -> bool:
    """Lock a folder; tell whether no other process holds the lock now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        log.warning("%s cannot be locked: make sure that no other process trains into it", folder)
    return True


def this_process(environ: Mapping[str, str], script: str) -> Owner:
    """Return the identity of this process."""
    return Owner(environ.get(START, ""), script, time.time(), os.getpid())


def script_name() -> str:
    """Return the name of the script's file."""
    return Path(sys.argv[0]).name


def read(folder: Path) -> Owner | None:
    """Return the process that has saved fits in a folder; None: there is none, or it is unknown."""
    try:
        return Owner(**json.loads((folder / FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _holder(folder: Path, start: str) -> Owner | None:
    """Return the process that holds the lock; wait a little until it has written its identity."""
    until = time.monotonic() + HOLDER_SECONDS
    while (found := read(folder)) is None or found.start != start:
        if not start or time.monotonic() > until:
            break
        time.sleep(LOOK_SECONDS)
    return found


def write(folder: Path, owner: Owner) -> None:
    """Write the identity of the process that saves its fits in a folder.

    Raises:
        OSError: it cannot be written.
    """
    write_whole(folder / FILE, json.dumps(asdict(owner)).encode(), durable=False)


def _taken(folder: Path) -> Problem:
    accepted = "a folder that no other process trains into"
    advice = (
        f"Another process trains into {folder}; TRAINER_CHECKPOINT_STEPS=0 keeps no checkpoints."
    )
    return Problem("TRAINER_RUN_DIR", str(folder.parent), accepted, advice)
