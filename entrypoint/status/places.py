"""The folder of a worker's status, and whether the process that keeps it is alive."""

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
    """Return the candidate folders; the first writable one is used.

    /dev/shm exists in every container and is memory. It works with a read-only root, too.
    """
    own = environ.get("TMPDIR")
    usual = (Path("/tmp"), Path("/dev/shm"))  # noqa: S108 -- a new folder is created there
    return (Path(own), *usual) if own else usual


def make_folder(within: Sequence[Path]) -> Path | None:
    """Create a new folder for this start; return None if no place is writable.

    The command reports its state there, and may run as another user (sudo, gosu). So everybody may
    write, and only a file's owner may remove it, as in /tmp.
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
    """Yield the folders of all starts."""
    for place in dict.fromkeys(within):
        with suppress(OSError):
            yield from sorted(place.glob(f"{PREFIX}*{SUFFIX}"))


def remove_folder(folder: Path) -> None:
    """Remove the files of an earlier start, as far as possible."""
    with suppress(OSError):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


@dataclass(frozen=True)
class StatusKeeper:
    """The process that keeps a status. A PID alone does not identify it: PIDs are reused."""

    machine: str
    """The container's ID: containers that share a folder have separate PIDs."""
    pid: int
    started: int
    """When the process started, in the kernel's ticks since boot."""

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
        """Whether it runs, or ran, on this machine since its last boot."""
        return self.machine.partition("/")[0] == this_boot()

    @property
    def is_alive(self) -> bool:
        """Whether it still runs here."""
        return self.is_here and started(self.pid) == self.started


def hold(folder: Path) -> int | None:
    """Lock a folder for the life of this process; None if that is impossible.

    PIDs cannot show whether a process of another container is alive.
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
    """Whether the process that locked a folder has ended; False if there was no lock."""
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
    """Return when a living process started; None if there is none."""
    process = living_process(pid)
    return process.started if process else None
