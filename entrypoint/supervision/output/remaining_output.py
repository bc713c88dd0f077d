"""Waits for the rest of an ended command's output as long as it moves; counts what is left."""

from __future__ import annotations

import array
import fcntl
import select
import termios
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread

FLUSH_SECONDS = 2.0
"""The time without new output after which the wait is over. A process that left its session may
keep the pipe open for ever."""
STALLED_SECONDS = 30.0
"""The time that the reader of the log may take for the next bytes."""
MOST_SECONDS = 120.0
"""The time limit for the rest, whether it moves or not."""
POLL_SECONDS = 0.1


@dataclass
class Stream:
    """One pipe from the command, and how far its data have come."""

    reading: int
    writing: int
    """The command's end."""
    steps: int = 0
    """Grows whenever data move."""
    held: int = 0
    """The number of bytes that were read, but are not written yet."""

    def left(self) -> int:
        """Return the number of bytes that the command has written, and nobody has taken yet."""
        waiting = array.array("i", [0])
        with suppress(OSError):  # closed meanwhile: nothing waits
            fcntl.ioctl(self.reading, termios.FIONREAD, waiting)
        return self.held + waiting[0]


def left_after_waiting(pumps: Mapping[Thread, Stream]) -> int:
    """Wait for the threads that forward streams; return how many bytes could not be forwarded."""
    start = moved = time.monotonic()
    before = -1
    while alive := {pump: stream for pump, stream in pumps.items() if pump.is_alive()}:
        now, steps = time.monotonic(), sum(stream.steps for stream in pumps.values())
        if steps != before:
            before, moved = steps, now
        is_held = any(stream.held for stream in alive.values())
        patience = STALLED_SECONDS if is_held else FLUSH_SECONDS
        if now - moved > patience or now - start > MOST_SECONDS:
            return sum(stream.left() for stream in alive.values())
        next(iter(alive)).join(POLL_SECONDS)
    return 0


def takes_more(descriptor: int) -> bool:
    """Whether a short line can be written at once. A reader that stalls must not stop the exit."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in poll.poll(0))
