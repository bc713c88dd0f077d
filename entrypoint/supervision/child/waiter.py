"""Waits for a child: forwards signals, and kills it after its grace period."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable

from entrypoint.errors import how_it_ended, signal_name
from entrypoint.log import Log
from entrypoint.supervision.child.child_process import (
    FORWARDED,
    STOPS,
    ChildProcess,
    next_signal,
)
from entrypoint.supervision.child.ended import Ended, ended_by_itself, stopped_by


class Waiter:
    """Waits for one child until it has ended.

    Attributes:
        stop: the stop signal that was received; 0 before.
    """

    def __init__(
        self,
        child: ChildProcess,
        name: str,
        grace_seconds: float,
        log: Log,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.stop = 0
        self._on_stop = on_stop
        self._child, self._name, self._grace, self._log = child, name, grace_seconds, log
        self._deadline: float | None = None
        self._killed_for: Ended | None = None
        self._is_refused = False

    def wait(self, on_child_signal: Callable[[], Ended | None] = lambda: None) -> Ended:
        """Wait until the child has ended, and all its processes are gone.

        `on_child_signal` is called when any child has ended; if it returns an end, this child is
        killed.
        """
        while True:
            number = next_signal(self._seconds_left())
            if number == signal.SIGCHLD:
                status = self._child.poll()
                if status is not None:
                    self._child.kill_rest()
                    return self._ended(status)
                self._end_for(on_child_signal())
            elif number is None:
                self._deadline = None
                if not self._child.kill():
                    return stopped_by(self.stop, "processes of another user were left behind")
            elif number in self._child.ignores:
                say_unheard([number], self._log)
            elif number in FORWARDED:
                self._pass_on(number)

    def _seconds_left(self) -> float | None:
        return None if self._deadline is None else self._deadline - time.monotonic()

    def _pass_on(self, number: int) -> None:
        """Forward a signal to the child; a stop signal starts its grace period."""
        if not self._child.tell(number):
            self._say_refused(number)
        if number in STOPS and not self.stop:
            self.stop = number
            self._deadline = time.monotonic() + self._grace
            self._on_stop()

    def _end_for(self, ended: Ended | None) -> None:
        """Kill the child if there is a reason to, unless a stop is pending."""
        if ended and not self.stop:
            self._killed_for = ended
            if not self._child.kill():
                self._say_refused(signal.SIGKILL)

    def _say_refused(self, number: int) -> None:
        """Log once that the child runs as another user, whom this process may not signal."""
        if not self._is_refused:
            self._is_refused = True
            name = signal_name(number)
            self._log.warning(f"{self._name} runs as another user: it cannot be sent {name}")

    def _ended(self, status: int) -> Ended:
        if status != 0 and self.stop:
            return stopped_by(self.stop, f"it {how_it_ended(status)}")
        if status != 0 and self._killed_for:
            return self._killed_for
        ran_out = self._child.oom_kills.cause()
        return ended_by_itself(status, self._name, ran_out, stopped=bool(self.stop))


def say_unheard(numbers: Iterable[int], log: Log) -> None:
    """Log the signals that arrived before the command could receive them."""
    for number in numbers:
        log.info(f"{signal_name(number)} is ignored: it is for the command, which does not run yet")
