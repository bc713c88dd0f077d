"""How much memory this container may still take: its cgroup's limit, else the machine's."""

from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
# cgroup v2's and v1's (limit, usage) files.
LIMITS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def available_bytes(cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> int:
    """Return the bytes that can still be taken before the kernel kills somebody."""
    return min([_machine_bytes(meminfo), *_container_bytes(cgroup)])


def _machine_bytes(meminfo: Path) -> int:
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def _container_bytes(cgroup: Path) -> list[int]:
    for limit, usage in LIMITS:
        try:
            # v2 says "max" without a limit; v1 says a number larger than any machine's memory.
            return [int((cgroup / limit).read_text()) - int((cgroup / usage).read_text())]
        except (OSError, ValueError):
            continue
    return []
