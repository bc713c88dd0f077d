"""Decides which process of a start joins the other workers: one at a time.

JAX knows a worker by its rank. If a second process joined with the same rank, JAX would end the
first one. Processes of a start that run one after the other may all join.
"""

import fcntl
import logging
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import IO

from cluster_trainer.fits.identity.end_mark import VARIABLE as END_MARKS
from cluster_trainer.fits.identity.owner import START
from cluster_trainer.problems import ConfigurationError, Problem

JOINED = "CLUSTER_TRAINER_JAX_PROCESS"
"""The process that has joined; those that it starts inherit it."""
UNKNOWN = "0"
ADVICE = "Train in one process after the other, or give each its own container."
log = logging.getLogger("trainer")
_locks: list[IO[str]] = []


def joins(environ: MutableMapping[str, str]) -> bool:
    """Tell whether this process is to join the other workers, and note in JOINED which one does.

    Args:
        environ: of this process. Without an entrypoint, only processes that are started by one that
            has joined are known.
    """
    if JOINED in environ:
        return False
    other = _other(environ)
    environ[JOINED] = other or str(os.getpid())
    return other is None


def refuse_second_process(environ: Mapping[str, str]) -> None:
    """Refuse a fit in a process that has not joined, such as a forked one.

    Raises:
        ConfigurationError: another process of this start has joined.
    """
    other = environ.get(JOINED, "")
    if other in {"", str(os.getpid())}:
        return
    received = f"process {os.getpid()}, beside process {other}, which trains with the others"
    accepted = "one process of each worker at a time"
    raise ConfigurationError([Problem("fit", received, accepted, ADVICE)])


def _other(environ: Mapping[str, str]) -> str | None:
    """Lock the start's file, and return the process that has locked it before; None: there is none.

    A lock of `lockf` ends with its process, and is not a forked process's as well.
    """
    marks, start = environ.get(END_MARKS), environ.get(START)
    if not (marks and start):
        return None
    file = Path(marks).with_name(f"{start}.joined")
    try:
        lock = file.open("a+")
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return file.read_text().strip() or UNKNOWN
    except OSError as error:
        log.warning("it is not known whether another process of this start trains: %s", error)
        return None
    lock.truncate(0)
    print(os.getpid(), file=lock, flush=True)
    _locks.append(lock)
    return None
