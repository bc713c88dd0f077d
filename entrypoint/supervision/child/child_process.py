"""A child process in a session of its own: starting it, telling it signals, ending all of it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from entrypoint.proc import LivingProcess, living_processes
from entrypoint.supervision.child.out_of_memory import OomKills

STOPS = (signal.SIGTERM, signal.SIGINT)
"""What asks a command to end, within its grace."""
NOTICES = (
    *(signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
    *(signal.SIGVTALRM, signal.SIGPROF, signal.SIGPOLL, signal.SIGPWR, signal.SIGSTKFLT),
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
)
"""What ends a program only if it does not expect it: for the command, and for nothing else here."""
FORWARDED = (*STOPS, *NOTICES)
AWAITED = (*FORWARDED, signal.SIGCHLD, signal.SIGTTOU)
"""Blocked in this process and taken by `next_signal`. SIGTTOU: whoever gives a terminal away from
the background would be stopped by it."""
KILLED_SECONDS = 5.0
"""How long a killed process may take to be gone: the kernel has its memory to give back first."""
POLL_SECONDS = 0.01
PR_SET_CHILD_SUBREAPER = 36
"""Of prctl(2)."""

_running: dict[int, ChildProcess] = {}
"""The children of this process whose end is not known yet."""


def hold_notices() -> None:
    """From now on the signals that are no stops wait, too early for the command as they are."""
    signal.pthread_sigmask(signal.SIG_BLOCK, NOTICES)


def block_signals() -> None:
    """From now on signals wait for `next_signal`; before any child or thread exists."""
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)


def unblock_signals() -> None:
    """From now on signals end this process, at once, as they would without all this."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)


def next_signal(seconds: float | None) -> int | None:
    """Wait for a signal and return its number; None after so many seconds (None: no limit)."""
    if seconds is None:
        return signal.sigwaitinfo(AWAITED).si_signo
    received = signal.sigtimedwait(AWAITED, max(0.0, seconds))
    return received.si_signo if received else None


def take_stop() -> int | None:
    """Return the stop that waits to be taken, None if nobody has asked for one."""
    received = signal.sigtimedwait(STOPS, 0)
    return received.si_signo if received else None


def take_notices() -> list[int]:
    """Return the signals that wait and are no stops."""
    taken = []
    while received := signal.sigtimedwait(NOTICES, 0):
        taken.append(received.si_signo)
    return taken


def become_subreaper() -> None:
    """Become the parent of whatever a command leaves behind, in whatever session.

    Where the kernel does not allow that, what has left the command's session is not found.
    """
    import ctypes  # noqa: PLC0415 -- `explain` needs none

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def collect_ended() -> None:
    """Take the ends of all children: this process's own, and those that it has been given."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if child := _running.pop(ended[0], None):
                child.status = os.waitstatus_to_exitcode(ended[1])
                child.on_end(child.status)


class ChildProcess:
    """A process that was forked from this one, and whatever it starts.

    Attributes:
        ignores: signals that it does not hear.
        on_end: is told its status, as soon as that is known.
        status: its exit code, minus the signal if one killed it; None while it is not known to have
            ended.
    """

    def __init__(
        self,
        run: Callable[[], int],
        *,
        terminal: bool = False,
        adopts: bool = False,
        ignores: Collection[int] = (),
    ) -> None:
        """Fork; the child runs the function, and ends with what it returns.

        With a terminal it stays in the session and gets the foreground, so that Ctrl-C reaches it
        and not us; else it leads a session, so that whatever it starts can be found again. One that
        `adopts` has also started whatever else this process has become the parent of.
        """
        self._terminal, self._adopts, self.ignores = terminal, adopts, ignores
        self.status: int | None = None
        self.on_end: Callable[[int], None] = lambda _: None
        self.oom_kills = OomKills()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(_run(run, terminal=terminal, ignores=ignores))
        _running[self.pid] = self

    def tell(self, number: int) -> bool:
        """Send a signal to the child and its group; return False if we may not.

        That is so where the child has become another user, and we are not root.
        """
        try:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:  # it has not come as far as to lead a group
                os.kill(self.pid, number)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return True

    def kill(self) -> bool:
        """End the child and all of its session, at once; return False if we may not."""
        is_told = self.tell(signal.SIGKILL)
        self.kill_rest()
        return is_told

    def kill_rest(self) -> None:
        """End what is left of the child's group and session, and wait until it is gone.

        Only then are its ports free for the next one.
        """
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + KILLED_SECONDS
        while self._kill_left() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        collect_ended()

    def _kill_left(self) -> bool:
        """Kill what the child has started; return whether there was something to kill."""
        killed = False
        for process in living_processes():
            if process.pid != self.pid and self._has_started(process):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, signal.SIGKILL)
                    killed = True
        return killed

    def _has_started(self, process: LivingProcess) -> bool:
        """Whether a process is in the child's session, or was left to us by what it started."""
        is_orphan = process.parent == os.getpid() and process.pid not in _running
        return (self._adopts and is_orphan) or (not self._terminal and process.session == self.pid)

    def poll(self) -> int | None:
        """Return the exit code if it has ended, minus the signal if one killed it; else None."""
        collect_ended()
        return self.status

    def wait(self) -> int:
        """Wait until it has ended; return as `poll` does."""
        while (status := self.poll()) is None:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        return status


def _run(run: Callable[[], int], *, terminal: bool, ignores: Collection[int]) -> int:
    """Be the child: a group or session of its own, signals as usual, then the function."""
    try:
        _running.clear()
        for number in ignores:
            signal.signal(number, signal.SIG_IGN)
        if terminal:
            os.setpgid(0, 0)
            with suppress(OSError):
                os.tcsetpgrp(0, os.getpid())
        else:
            os.setsid()
        unblock_signals()
        return run()
    except BaseException:  # noqa: BLE001 -- the parent's code must never run in the child
        sys.excepthook(*sys.exc_info())
        return 1
