"""Finds which resource a process lacks: processor time, processors, memory, its disk."""

import os
import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster_trainer.process.oom import CGROUP
from cluster_trainer.processors import limit_of_processors

# The files with the time for which a limit has throttled the cgroup, and their units
# (https://docs.kernel.org/scheduler/sched-bwc.html, admin-guide/cgroup-v2.html).
THROTTLED = (
    ("cpu.stat", "throttled_usec", 1e-6),
    ("cpu/cpu.stat", "throttled_time", 1e-9),
    ("cpu,cpuacct/cpu.stat", "throttled_time", 1e-9),
)
THROTTLED_PART, DISK_PART, STARVED_PART = 0.1, 0.2, 0.6
FAULTS_A_SECOND = 20.0
"""Major page faults: pages that had to be read from a disk again."""


@dataclass(frozen=True)
class Used:
    """The resources that the process has used so far; only differences are meaningful.

    Attributes:
        seconds: the time, by the monotonic clock, in seconds.
        cpu: its processor time, in seconds.
        throttled: how long a limit has kept its container from processors, in seconds.
        faults: the number of its major page faults.
        input: how long its steps have waited for their batches, in seconds; None: unknown.
    """

    seconds: float
    cpu: float
    throttled: float
    faults: int
    input: float | None = None

    @classmethod
    def now(cls, waited_for_input: float | None = None, cgroup: Path = CGROUP) -> "Used":
        """Return the present usage."""
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        throttled = throttled_seconds(cgroup)
        return cls(time.monotonic(), time.process_time(), throttled, faults, waited_for_input)


def throttled_seconds(cgroup: Path) -> float:
    """Return how long a limit has throttled this cgroup, in seconds; 0: that is not counted."""
    for file, name, unit in THROTTLED:
        with suppress(OSError, ValueError, KeyError):
            lines = (cgroup / file).read_text().splitlines()
            return int(dict(line.split() for line in lines)[name]) * unit
    return 0.0


def shortage(before: Used, now: Used, busy: float, disk: float, cgroup: Path = CGROUP) -> str:
    """Return a text about the resources that a busy process has lacked, as far as they are known.

    Args:
        before: the resources that it had used at the beginning of an interval.
        now: the resources that it has used at its end.
        busy: the fraction of the interval in which it was busy.
        disk: the fraction in which it waited for a disk.
        cgroup: the folder in which the container sees its cgroup.
    """
    seconds = max(now.seconds - before.seconds, 1e-9)
    cpu = (now.cpu - before.cpu) / seconds
    throttled = min(1.0, (now.throttled - before.throttled) / seconds)
    faults = (now.faults - before.faults) / seconds
    found = []
    if throttled > THROTTLED_PART:
        limit = limit_of_processors(cgroup)
        named = f"its limit of {limit:g} processors" if limit else "a limit of its processors"
        found.append(f"{named} has stopped it for {throttled:.0%} of that time")
    if disk > DISK_PART:
        found.append(f"it has waited for a disk for {disk:.0%} of that time")
    if faults > FAULTS_A_SECOND:
        found.append(f"short of memory: {faults:.0f} pages per second are read from a disk again")
    if not found and cpu < STARVED_PART * busy:
        found.append("other programs of its machine use the processors")
    if not found:
        found.append("its processors are slower, or it has more to do than the others")
    found.append(f"it has used {cpu:.2f} of {os.cpu_count()} processors")
    if before.input is not None and now.input is not None and now.input >= before.input:
        part = min(1.0, (now.input - before.input) / seconds)
        found.append(f"its steps have waited for their batches for {part:.0%} of that time")
    return "; ".join(found)
