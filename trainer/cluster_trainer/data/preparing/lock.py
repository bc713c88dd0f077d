"""A lock between all processes and containers that share a directory."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(file: Path, say_waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock `file`, created if necessary; call `say_waiting` if another process has it.

    The kernel releases the lock when its holder dies.

    Raises:
        OSError: the file can be neither opened nor created.
    """
    descriptor = _open(file)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say_waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open(file: Path) -> int:
    """Open for reading, which is enough to lock a file that another user has created."""
    try:
        return os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return os.open(file, os.O_RDONLY | os.O_CREAT, 0o644)
