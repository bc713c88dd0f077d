"""Finds the memory that this container may still take, within its own limit and the machine's."""

from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
# The (limit, usage, statistics) files of cgroup v2 and v1.
LIMITS = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
# The page cache counts as used, but the kernel drops it before it kills a process.
CACHES = (("inactive_file", "active_file"), ("total_inactive_file", "total_active_file"))


def available_bytes(cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> int:
    """Return the number of bytes that can be taken before the kernel kills a process."""
    return min([_machine_bytes(meminfo), *_container_bytes(cgroup)])


def _machine_bytes(meminfo: Path) -> int:
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def _container_bytes(cgroup: Path) -> list[int]:
    for limit, usage, stat in LIMITS:
        try:
            # v2 says "max" without a limit; v1 says a number larger than any machine's memory
            free = int((cgroup / limit).read_text()) - int((cgroup / usage).read_text())
        except (OSError, ValueError):
            continue
        return [free + _cached_bytes(cgroup / stat)]
    return []


def _cached_bytes(stat: Path) -> int:
    """Return the size of the page cache, in bytes; 0: unknown. In v1 a total includes its parts."""
    try:
        lines = dict(line.split() for line in stat.read_text().splitlines())
        return max(sum(int(lines.get(name, 0)) for name in names) for names in CACHES)
    except (OSError, ValueError):
        return 0
