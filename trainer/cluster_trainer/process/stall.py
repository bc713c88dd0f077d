"""The watchdog for a step that never ends.

TensorFlow itself detects a peer that died or froze. It does not detect a live peer that never
reaches the next step, for example because the file system of its data hangs, or a GPU has fallen
off the bus. So the training process sets a deadline for each call. The process that watches it ends
it after the deadline, whatever state Python is in. If both are frozen, `status` sees the deadline
in a file.
"""

import math
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from typing import Any, Literal, Self

LEAST_SECONDS = 60.0
TIMES_THE_LONGEST = 10.0
LOOK_SECONDS = 1.0
MOMENT = struct.Struct("dq")
"""The moment, and the id of the process that has set it; the entrypoint's `status` reads both."""


class Deadline:
    """A moment of the monotonic clock that a process shares with its forked processes.

    Args:
        memory: the memory that holds it; None: new memory that only these processes share.
    """

    def __init__(self, memory: mmap.mmap | None = None) -> None:
        self._memory = memory or mmap.mmap(-1, MOMENT.size)
        self.clear()

    @classmethod
    def kept_in(cls, file: Path | None) -> Self:
        """Return a deadline that is also in a file, for `status`, if the file can be written."""
        return cls(_mapped(file) if file else None)

    @property
    def moment(self) -> float:
        """The moment, by `time.monotonic`, in seconds; infinity: there is no deadline."""
        moment, _ = MOMENT.unpack_from(self._memory)
        return float(moment)

    def set_in(self, seconds: float) -> None:
        """Set the moment to `seconds` from now."""
        MOMENT.pack_into(self._memory, 0, time.monotonic() + seconds, os.getpid())

    def clear(self) -> None:
        """Clear the moment."""
        MOMENT.pack_into(self._memory, 0, math.inf, os.getpid())

    @contextmanager
    def kept(self, on_passed: Callable[[], object]) -> Iterator[None]:
        """Call `on_passed` in a thread once the moment has passed, and again every LOOK_SECONDS."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(LOOK_SECONDS):
                if time.monotonic() >= self.moment:
                    on_passed()

        threading.Thread(target=look, name="deadline", daemon=True).start()
        try:
            yield
        finally:
            over.set()


def _mapped(file: Path) -> mmap.mmap | None:
    """Map a file; None if it cannot be written."""
    try:
        opened = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None
    try:
        # Write it first: on a full disk, the first write to the mapping would kill the process.
        os.pwrite(opened, MOMENT.pack(math.inf, os.getpid()), 0)
        return mmap.mmap(opened, MOMENT.size)
    except (OSError, ValueError):
        return None
    finally:
        os.close(opened)


class Kind(Enum):
    """The work of a call of TensorFlow besides its steps; calls of one kind take similar times."""

    STEPS = auto()  # nothing
    FIRST = auto()  # it begins a pass through the data, and waits for its first batch
    TRACES = auto()  # it traces and compiles


class StallLimit:
    """Sets the deadline for each call of TensorFlow.

    Args:
        deadline: the deadline, which another process watches.
        seconds: the time that a call may take; `auto`: a minute plus ten times the longest earlier
            call of its kind; 0: no limit.
    """

    def __init__(self, deadline: Deadline, seconds: int | Literal["auto"]) -> None:
        self._deadline, self._seconds = deadline, seconds
        self._longest = dict.fromkeys(Kind, 0.0)
        self._known: set[Callable[..., Any]] = set()
        self._present: set[Kind] = set()

    @contextmanager
    def call(self, function: Callable[..., Any], *, is_first: bool = False) -> Iterator[None]:
        """Limit the time of the context, which calls `function`.

        The first call of each function has no limit: it compiles, which may take many minutes on a
        GPU whose kernels must be translated first.

        Args:
            function: the function that is called.
            is_first: whether the call is the first of a pass, or of an epoch.
        """
        kind = Kind.FIRST if is_first else Kind.STEPS
        is_known = function in self._known
        self._present = {kind}
        self._deadline.set_in(self._limit(kind) if is_known else math.inf)
        begin = time.monotonic()
        try:
            yield
        finally:
            self._deadline.clear()
        if not is_known:  # it traces, too
            self._present |= {Kind.FIRST, Kind.TRACES}
        passed = time.monotonic() - begin
        for one in self._present & {Kind.FIRST, Kind.TRACES} or self._present:
            self._longest[one] = max(self._longest[one], passed)
        self._known.add(function)

    def traces(self) -> None:
        """Note that the current call traces, and give it the limit of such calls."""
        if Kind.TRACES in self._present or self._deadline.moment == math.inf:
            return
        self._present.add(Kind.TRACES)
        self._deadline.set_in(max(self._limit(Kind.TRACES), self._limit(Kind.FIRST)))

    def _limit(self, kind: Kind) -> float:
        if self._seconds == 0:
            return math.inf
        of_kind = LEAST_SECONDS + TIMES_THE_LONGEST * self._longest[kind]
        if self._seconds == "auto":
            return of_kind
        return max(self._seconds, of_kind) if kind == Kind.TRACES else self._seconds
