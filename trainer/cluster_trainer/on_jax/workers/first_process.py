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
"""The variable with the id of the process that has joined, which its child processes inherit."""
UNKNOWN = "0"
ADVICE = "Train in one process after the other, or give each its own container."
log = logging.getLogger("trainer")
_locks: list[IO[str]] = []


def joins(environ: MutableMapping[str, str]) -> bool:
    """Tell whether this process is to join the other workers; set JOINED to the one that joins.

    Without an entrypoint, a second process is only noticed if the first one has started it.

    Args:
        environ: this process's environment, which is changed.
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
    """Lock the start's file; return the process that already holds the lock, or None.

    A lock of `lockf` ends with its process, and a forked process does not inherit it.
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
