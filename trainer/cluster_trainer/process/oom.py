"""Finds out whether the kernel has killed a process in this container for lack of memory.

The kernel counts such kills in the container's cgroup. The entrypoint has a twin of this file
(`entrypoint/supervision/child/out_of_memory.py`), because the two packages share no code.
"""

from contextlib import suppress
from pathlib import Path

from cluster_trainer.pod import is_in_pod

CGROUP = Path("/sys/fs/cgroup")
# The kernel's counters and the limit, in cgroup v2 and v1
# (https://docs.kernel.org/admin-guide/cgroup-v2.html, cgroup-v1/memory.html).
FILES = (
    ("memory.events", "memory.max"),
    ("memory/memory.oom_control", "memory/memory.limit_in_bytes"),
)
COUNTER = "oom_kill"
# cgroup v1 shows a number beyond any machine's memory if there is no limit.
NO_LIMIT_BYTES = 2**60
MIB = 2**20


class OomKills:
    """The processes that the kernel has killed for lack of memory since this object was created.

    Args:
        cgroup: the folder in which the container sees its cgroup.
    """

    def __init__(self, cgroup: Path = CGROUP) -> None:
        self._cgroup = cgroup
        self._before = _count(cgroup)

    def cause(self) -> str | None:
        """Return a text about a kill; "" if there was none; None if there is no counter."""
        now = _count(self._cgroup)
        if now is None or self._before is None:
            return None
        return _what_ran_out(_limit_bytes(self._cgroup)) if now > self._before else ""


def _what_ran_out(limit: int | None) -> str:
    """Return a text about the limit that was reached, with advice; None: it is an outer limit."""
    if limit is None:
        return (
            "out of memory: the machine, or the pod or job around this container, has none left; "
            "a smaller batch helps"
        )
    where = "resources.limits.memory" if is_in_pod() else "docker run --memory"
    return (
        f"out of memory, this container's limit is {limit / MIB:.0f} MiB ({where}); "
        "a smaller batch or a larger limit helps"
    )


def _count(cgroup: Path) -> int | None:
    for counters, _ in FILES:
        with suppress(OSError, ValueError, KeyError):
            lines = (cgroup / counters).read_text().splitlines()
            return int(dict(line.split() for line in lines)[COUNTER])
    return None


def _limit_bytes(cgroup: Path) -> int | None:
    """Return the container's limit in bytes; None: it has none (v2 shows "max")."""
    for _, limit in FILES:
        with suppress(OSError, ValueError):
            number = int((cgroup / limit).read_text())
            return number if number < NO_LIMIT_BYTES else None
    return None
