"""The watchdog for a step that never ends.

TensorFlow itself detects a peer that died or froze. It does not detect a peer that lives but never
reaches the next step, for example because a file system hangs under its data, or a GPU is no longer
on the bus. The training process sets a deadline for the present call. The process that watches it
ends it when the deadline has passed, whatever state Python is in.
"""

import math
import mmap
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, Literal

LEAST_SECONDS = 60.0
TIMES_THE_LONGEST = 10.0
LOOK_SECONDS = 1.0
MOMENT = struct.Struct("d")


class Deadline:
    """A moment of the monotonic clock that a process shares with those it has forked."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, MOMENT.size)
        self.clear()

    @property
    def moment(self) -> float:
        """The moment as `time.monotonic` counts it; infinity if there is none."""
        (moment,) = MOMENT.unpack_from(self._memory)
        return float(moment)

    def set_in(self, seconds: float) -> None:
        """Set the moment, so many seconds from now."""
        MOMENT.pack_into(self._memory, 0, time.monotonic() + seconds)

    def clear(self) -> None:
        """Clear the moment."""
        MOMENT.pack_into(self._memory, 0, math.inf)

    @contextmanager
    def kept(self, on_passed: Callable[[], object]) -> Iterator[None]:
        """Call `on_passed` from a thread if the moment passes and no entrypoint watches."""
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


class Kind(Enum):
    """What a call of TensorFlow does beside its steps; calls of one kind take similar times."""

    STEPS = auto()  # nothing
    FIRST = auto()  # it begins a pass through the data, and waits for its first batch
    TRACES = auto()  # it traces and compiles


class StallLimit:
    """Sets the deadline for each call of TensorFlow.

    Args:
        deadline: what the watching process sees.
        seconds: how long a call may take; `auto`: a minute and ten times the longest of its kind so
            far; 0: no limit.
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
            function: is called.
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
        """Note that the present call traces: its limit is that of other calls that trace."""
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
