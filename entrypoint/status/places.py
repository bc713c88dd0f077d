"""Where the status of a worker lies, and whether the process that keeps it still lives."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from entrypoint.proc import living_process, this_boot, this_container

LOCK_FILE = "lock"
PREFIX, SUFFIX = "cluster-trainer-", ".status"


def places(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders of which the first that can be written is taken.

    /dev/shm is there in every container and is memory, with a root that is read-only, too.
    """
    own = environ.get("TMPDIR")
    usual = (Path("/tmp"), Path("/dev/shm"))  # noqa: S108 -- a folder of one's own is made there
    return (Path(own), *usual) if own else usual


def make_folder(within: Sequence[Path]) -> Path | None:
    """Make a folder that no other start has; None where nothing can be written.

    The command may be another user by then (sudo, gosu), and tells there what it is at: anybody may
    write, and nobody may take away what is another's, as in /tmp.
    """
    for place in within:
        folder = place / f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}"
        try:
            folder.mkdir()
            folder.chmod(0o1777)
        except OSError:
            continue
        return folder
    return None


def folders(within: Sequence[Path]) -> Iterator[Path]:
    """Yield the folders of all starts, and nothing where a place is not there."""
    for place in dict.fromkeys(within):
        with suppress(OSError):
            yield from sorted(place.glob(f"{PREFIX}*{SUFFIX}"))


def remove_folder(folder: Path) -> None:
    """Remove what a start has left, as far as that may be."""
    with suppress(OSError):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


@dataclass(frozen=True)
class StatusKeeper:
    """The process that keeps a status; its number alone may be another's by now."""

    machine: str
    """The container: those that share a folder have numbers of their own."""
    pid: int
    started: int
    """When, in the kernel's ticks since it booted."""

    @classmethod
    def of_this_process(cls) -> StatusKeeper:
        """Return this process."""
        pid = os.getpid()
        return cls(this_container(), pid, started(pid) or 0)

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, a process of this container."""
        return self.machine == this_container()

    @property
    def is_of_this_boot(self) -> bool:
        """Whether it runs, or ran, on this machine since that was started."""
        return self.machine.partition("/")[0] == this_boot()

    @property
    def is_alive(self) -> bool:
        """Whether it still runs here."""
        return self.is_here and started(self.pid) == self.started


def hold(folder: Path) -> int | None:
    """Lock a folder for as long as this process lives; None where that cannot be.

    Whether a container that is not this one still lives cannot be told from its numbers.
    """
    try:
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    if _lock(lock):
        return lock
    os.close(lock)
    return None


def is_abandoned(folder: Path) -> bool:
    """Whether whoever held a folder is gone; False where nobody has, or that cannot be told."""
    try:
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    is_free = _lock(lock)
    os.close(lock)
    return is_free


def _lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def started(pid: int) -> int | None:
    """Return when a living process started, None if there is none."""
    process = living_process(pid)
    return process.started if process else None
