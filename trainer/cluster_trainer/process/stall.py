"""The watchdog for a step that never ends.

TensorFlow notices a peer that died or froze by itself. It does not notice one that lives and yet
never comes to the next step: a file system that hangs under its data, a GPU that has fallen off the
bus. The training process says until when the present call must be over; the process that watches
it ends it when that moment has passed, whatever state Python is in.
"""

import math
import mmap
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        """The moment as `time.monotonic` counts it; infinity where there is none."""
        (moment,) = MOMENT.unpack_from(self._memory)
        return float(moment)

    def set_in(self, seconds: float) -> None:
        """Set the moment, so many seconds from now."""
        MOMENT.pack_into(self._memory, 0, time.monotonic() + seconds)

    def clear(self) -> None:
        """Let there be none."""
        MOMENT.pack_into(self._memory, 0, math.inf)

    @contextmanager
    def kept(self, on_passed: Callable[[], object]) -> Iterator[None]:
        """Call `on_passed` from a thread if the moment passes, in a process that nobody watches."""
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


class StallLimit:
    """Sets the deadline for each call of TensorFlow.

    Args:
        deadline: what the watching process sees.
        seconds: how long a call may take; `auto`: a minute and ten times the longest so far; 0: no
            limit.
    """

    def __init__(self, deadline: Deadline, seconds: int | Literal["auto"]) -> None:
        self._deadline, self._seconds = deadline, seconds
        self._longest = 0.0
        self._known: set[Callable[..., Any]] = set()

    @contextmanager
    def call(self, function: Callable[..., Any]) -> Iterator[None]:
        """Limit what runs inside, which calls `function`.

        The first call of each has no limit: it compiles, which may take many minutes on a GPU whose
        kernels have to be translated first.
        """
        limit = self._limit() if function in self._known else math.inf
        self._deadline.set_in(limit)
        begin = time.monotonic()
        try:
            yield
        finally:
            self._deadline.clear()
        if function in self._known:
            self._longest = max(self._longest, time.monotonic() - begin)
        self._known.add(function)

    def _limit(self) -> float:
        if self._seconds == "auto":
            return LEAST_SECONDS + TIMES_THE_LONGEST * self._longest
        return self._seconds or math.inf
