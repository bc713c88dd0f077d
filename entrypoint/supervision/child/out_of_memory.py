"""Whether the kernel has killed a process in this container because memory ran out.

The kernel counts such kills in the container's cgroup. The trainer has a twin of this file
(`trainer/cluster_trainer/process/oom.py`), because the two packages share no code.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from entrypoint.pod import is_in_pod

CGROUP = Path("/sys/fs/cgroup")
FILES = (
    ("memory.events", "memory.max"),
    ("memory/memory.oom_control", "memory/memory.limit_in_bytes"),
)
"""The kernel's counters and the limit, in cgroup v2 and v1
(https://docs.kernel.org/admin-guide/cgroup-v2.html, cgroup-v1/memory.html)."""
COUNTER = "oom_kill"
NO_LIMIT_BYTES = 2**60
"""cgroup v1 shows a number beyond any machine's memory if there is no limit."""
MIB = 2**20


class OomKills:
    """The processes that the kernel has killed for lack of memory since this object was created."""

    def __init__(self, cgroup: Path = CGROUP) -> None:
        self._cgroup = cgroup
        self._before = _count(cgroup)

    def cause(self) -> str | None:
        """Return the limit that was reached; "" if nothing was killed, None without a counter."""
        now = _count(self._cgroup)
        if now is None or self._before is None:
            return None
        return _what_ran_out(_limit_bytes(self._cgroup)) if now > self._before else ""


def _what_ran_out(limit: int | None) -> str:
    """Describe the limit that was reached; without one here, it was an outer limit."""
    if limit is None:
        return "out of memory: the machine, or the pod or job around this container, has none left"
    where = "resources.limits.memory" if is_in_pod() else "docker run --memory"
    return f"out of memory, this container's limit is {limit / MIB:.0f} MiB ({where})"


def _count(cgroup: Path) -> int | None:
    """Return the kernel's counter; None if there is no readable one."""
    for counters, _ in FILES:
        with suppress(OSError, ValueError, KeyError):
            lines = (cgroup / counters).read_text().splitlines()
            return int(dict(line.split() for line in lines)[COUNTER])
    return None


def _limit_bytes(cgroup: Path) -> int | None:
    """Return the container's limit; None if it has none (v2 shows "max")."""
    for _, limit in FILES:
        with suppress(OSError, ValueError):
            number = int((cgroup / limit).read_text())
            return number if number < NO_LIMIT_BYTES else None
    return None
