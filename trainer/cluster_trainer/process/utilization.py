"""Measures the fraction of the time in which this process is busy, and not only waiting.

In synchronous training all workers' calls take the same time, because each step waits for the
slowest worker. The workers differ in their activity in this time. So a thread checks ten times a
second whether any other thread of the process runs or is runnable (state R of /proc, also while it
is throttled), or waits for a disk (state D). A worker that waits for the others has no such thread.
"""

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TASKS = Path("/proc/self/task")
BETWEEN_SECONDS = 0.1
LONGEST_SECONDS = 2.0
"""A longer interval between two looks counts as this: the process, or Python, was paused."""
WORKING, READING = b"R", b"D"


@dataclass(frozen=True)
class Utilization:
    """The activity of a process since it was first observed, in seconds.

    Attributes:
        seconds: how long it was observed.
        busy: how long at least one thread ran, was runnable, or waited for a disk.
        disk: how long at least one thread waited for a disk, and none ran or was runnable.
    """

    seconds: float = 0.0
    busy: float = 0.0
    disk: float = 0.0

    def since(self, before: "Utilization") -> "Utilization":
        """Return the difference to `before`."""
        return Utilization(
            self.seconds - before.seconds, self.busy - before.busy, self.disk - before.disk
        )


class UtilizationSampler:
    """Observes this process from a separate thread, from `begin` to `end`."""

    def __init__(self, tasks: Path = TASKS) -> None:
        self._tasks = tasks
        self._ended = threading.Event()
        self._seconds = self._busy = self._disk = 0.0
        self._thread = threading.Thread(target=self._look, name="labour", daemon=True)

    def begin(self) -> None:
        """Begin to observe the process."""
        with suppress(RuntimeError):  # no thread can be started: then no worker is reported as slow
            self._thread.start()

    def end(self) -> None:
        """Stop observing the process."""
        self._ended.set()

    def so_far(self) -> Utilization:
        """Return the activity so far."""
        return Utilization(self._seconds, self._busy, self._disk)

    def _look(self) -> None:
        own = str(threading.get_native_id())
        before = time.monotonic()
        while not self._ended.wait(BETWEEN_SECONDS):
            states = states_of(self._tasks, own)
            now = time.monotonic()
            passed, before = min(now - before, LONGEST_SECONDS), now
            self._seconds += passed
            if WORKING in states:
                self._busy += passed
            elif READING in states:
                self._busy += passed
                self._disk += passed


def states_of(tasks: Path, own: str) -> set[bytes]:
    """Return the states of a process's threads except `own`, as letters of proc(5)."""
    found = set()
    for task in os.listdir(tasks):  # noqa: PTH208  ten times a second
        if task == own:
            continue
        try:
            with open(f"{tasks}/{task}/stat", "rb") as file:  # noqa: PTH123
                found.add(file.read().rpartition(b")")[2].split(None, 1)[0])
        except (OSError, IndexError):  # it has ended meanwhile
            continue
    return found
