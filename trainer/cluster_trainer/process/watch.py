"""The process that watches the one with TensorFlow.

TensorFlow holds the GIL while it waits for its peers, for up to an hour (measured). Meanwhile no
thread of its process runs, no signal is handled, and no time limit can end it from within. So
training runs in a child process. The parent, which never imports TensorFlow, receives the signals,
logs the wait, and kills a stuck child.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster_trainer.problems import ExitCode
from cluster_trainer.process.oom import OomKills
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import SIGNAL_CODES, STOP_SIGNALS

AWAITED = (*STOP_SIGNALS, signal.SIGCHLD)
HEARTBEAT_SECONDS = 10.0
UP, ASKS = b"1", b"r"
"""Messages of the child: its cluster is complete; it asks the entrypoint for the other workers."""
NEWS_BYTES = 16
# Before the cluster is complete, nothing is trained, and nothing is lost.
STARTING_STOP_SECONDS = 2.0


@dataclass(frozen=True)
class Ended:
    """The end of the child; `reason` is None if the child has logged it itself."""

    code: int
    reason: str | None = None


STALLED = Ended(
    ExitCode.PEER_LOST,
    "a step takes far longer than all before it, here or on another worker "
    "(TRAINER_STALL_TIMEOUT_SECONDS): the run is stuck",
)


@dataclass(frozen=True)
class Limits:
    """The time limits of the child.

    Attributes:
        start_up_seconds: the time until its cluster is complete, or until it asks the entrypoint
            for the other workers, which has limits of its own; None: there is no limit.
        stop_seconds: the time that it has to end after a stop request.
        deadline: the deadline of its current call of TensorFlow.
    """

    start_up_seconds: float | None
    stop_seconds: float
    deadline: Deadline


class Watch:
    """Watches one child.

    Args:
        child: the child's process id. It leads a process group of its own. So signals from a
            terminal or tini to this process's group reach it only once, from here.
        up: the reading end of a pipe into which the child writes UP and ASKS.
        limits: the child's time limits.
        say_waiting: is called every HEARTBEAT_SECONDS until the cluster is complete, if there is
            one.
    """

    def __init__(
        self, child: int, up: int, limits: Limits, say_waiting: Callable[[], None]
    ) -> None:
        self._child, self._up, self._say_waiting = child, up, say_waiting
        self._oom_kills = OomKills()
        self._stop_seconds, self._deadline = limits.stop_seconds, limits.deadline
        start_up_seconds = limits.start_up_seconds
        self._starting = start_up_seconds is not None
        os.set_blocking(up, False)
        reason = (
            f"the cluster was not complete after {start_up_seconds:g} s "
            "(TRAINER_STARTUP_TIMEOUT_SECONDS). Is every worker of the list running, and can each "
            "reach the others' addresses and ports?"
            if start_up_seconds is not None
            else ""
        )
        self._at_limit = Ended(ExitCode.PEER_LOST, reason)
        self._limit = time.monotonic() + start_up_seconds if start_up_seconds else None

    def wait(self) -> Ended:
        """Wait until the child has ended or was killed."""
        while True:
            number = self._next_signal()
            if self._starting and (news := self._news()):
                self._starting, self._limit = UP not in news, None
            if number == signal.SIGCHLD:
                child, status = os.waitpid(self._child, os.WNOHANG)
                if child:
                    return _ended(os.waitstatus_to_exitcode(status), self._oom_kills.cause())
            elif number:
                self._pass_on(number)
            elif self._limit is not None and time.monotonic() >= self._limit:
                return self._end_child(self._at_limit)
            elif self._limit is None and time.monotonic() >= self._deadline.moment:
                return self._end_child(STALLED)
            elif self._starting:
                self._say_waiting()

    def _next_signal(self) -> int | None:
        """Wait for a signal, or until a limit is reached; return its number, or None."""
        due = self._deadline.moment if self._limit is None else self._limit
        seconds = max(0.0, min(HEARTBEAT_SECONDS, due - time.monotonic()))
        received = signal.sigtimedwait(AWAITED, seconds)
        return received.si_signo if received else None

    def _end_child(self, ended: Ended) -> Ended:
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        return ended

    def _news(self) -> bytes:
        try:
            return os.read(self._up, NEWS_BYTES)
        except BlockingIOError:
            return b""

    def _pass_on(self, number: int) -> None:
        os.kill(self._child, number)
        name = signal.Signals(number).name
        self._at_limit = Ended(SIGNAL_CODES + number, f"stopped by {name}")
        grace = STARTING_STOP_SECONDS if self._starting else self._stop_seconds
        self._limit = time.monotonic() + grace
        self._starting = False


def _ended(code: int, ran_out: str | None) -> Ended:
    """Return the end of a child, with a reason if a signal has killed it.

    `ran_out` is the result of `OomKills.cause`.
    """
    if code >= 0:
        return Ended(code)
    reason = f"the training process was killed by {signal.Signals(-code).name}"
    if -code == signal.SIGKILL:
        guess = "out of memory?" if ran_out is None else ran_out
        reason = f"{reason}: {guess}" if guess else reason
    return Ended(SIGNAL_CODES - code, reason)
