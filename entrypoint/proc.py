"""Reads /proc: the boot, the container, and the processes that are alive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
BOOT_ID = PROC / "sys/kernel/random/boot_id"
PID_NAMESPACE = PROC / "self/ns/pid"
STATE_FIELD, PARENT_FIELD, SESSION_FIELD, START_FIELD = 0, 1, 3, 19
"""Columns of /proc/PID/stat, counted from the state, which follows the name (proc(5))."""


def this_boot() -> str:
    """Return the ID of this boot of this machine; the host name if the kernel has no boot ID."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return os.uname().nodename


def this_container() -> str:
    """Return an ID of this container: the same for all processes in one PID namespace.

    Host names are not unique: containers with `--network host` have their host's name.
    """
    try:
        return f"{this_boot()}/{PID_NAMESPACE.stat().st_ino}"
    except OSError:
        return f"{this_boot()}/{os.uname().nodename}"


@dataclass(frozen=True)
class LivingProcess:
    """One process of this machine, or of this container."""

    pid: int
    parent: int
    session: int
    started: int
    """When the process started, in the kernel's ticks since boot."""
    is_stopped: bool = False
    """Whether SIGSTOP, or a like signal, has stopped it."""


def living_processes() -> Iterator[LivingProcess]:
    """Yield the living processes, in any group and with any parent."""
    for folder in PROC.iterdir():
        if folder.name.isdigit() and (found := living_process(int(folder.name))):
            yield found


def living_process(pid: int) -> LivingProcess | None:
    """Return a process by its number; None if it has ended."""
    try:
        # The name, in parentheses, may contain any character.
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[STATE_FIELD] == b"Z":
        return None
    parent, session, started = (
        int(fields[at]) for at in (PARENT_FIELD, SESSION_FIELD, START_FIELD)
    )
    return LivingProcess(pid, parent, session, started, is_stopped=fields[STATE_FIELD] == b"T")
