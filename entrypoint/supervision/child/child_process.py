"""A child process in its own session: starting it, signalling it, ending all of it."""

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
"""Signals that ask a command to end within its grace period."""
NOTICES = (
    *(signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
    *(signal.SIGVTALRM, signal.SIGPROF, signal.SIGPOLL, signal.SIGPWR, signal.SIGSTKFLT),
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
)
"""Signals that end a program only if it does not handle them. They are for the command only."""
FORWARDED = (*STOPS, *NOTICES)
AWAITED = (*FORWARDED, signal.SIGCHLD, signal.SIGTTOU)
"""Signals that are blocked in this process, and received by `next_signal`. SIGTTOU would stop a
background process that hands over the terminal."""
KILLED_SECONDS = 5.0
"""The time for a killed process to disappear: the kernel frees its memory first."""
POLL_SECONDS = 0.01
PR_SET_CHILD_SUBREAPER = 36
"""Of prctl(2)."""

_running: dict[int, ChildProcess] = {}
"""The children of this process that are not known to have ended."""


def hold_notices() -> None:
    """Block signals other than stops from now on, until the command can receive them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, NOTICES)


def block_signals() -> None:
    """Block all awaited signals for `next_signal`, before any child or thread exists."""
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)


def unblock_signals() -> None:
    """Unblock the signals: from now on they end this process as usual."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)


def next_signal(seconds: float | None) -> int | None:
    """Return the number of the next signal; None after `seconds` (None: no limit)."""
    if seconds is None:
        return signal.sigwaitinfo(AWAITED).si_signo
    received = signal.sigtimedwait(AWAITED, max(0.0, seconds))
    return received.si_signo if received else None


def take_stop() -> int | None:
    """Return a pending stop signal; None if there is none."""
    received = signal.sigtimedwait(STOPS, 0)
    return received.si_signo if received else None


def take_notices() -> list[int]:
    """Return the pending signals that are not stops."""
    taken = []
    while received := signal.sigtimedwait(NOTICES, 0):
        taken.append(received.si_signo)
    return taken


def become_subreaper() -> None:
    """Become the parent of processes that a command leaves behind, in any session.

    If the kernel does not allow that, processes that left the command's session are not found.
    """
    import ctypes  # noqa: PLC0415 -- `explain` needs none

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def collect_ended() -> None:
    """Reap all children that have ended: this process's own, and adopted ones."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if child := _running.pop(ended[0], None):
                child.status = os.waitstatus_to_exitcode(ended[1])
                child.on_end(child.status)


class ChildProcess:
    """A process that was forked from this one, with everything that it starts.

    Attributes:
        ignores: signals that the process ignores.
        on_end: called with the status as soon as it is known.
        status: the exit code, or minus the signal that killed the process; None until its end.
    """

    def __init__(
        self,
        run: Callable[[], int],
        *,
        terminal: bool = False,
        adopts: bool = False,
        ignores: Collection[int] = (),
    ) -> None:
        """Fork; the child runs the function, and exits with its result.

        With a terminal, the child stays in the session and gets the foreground, so that Ctrl-C
        reaches the child and not this process. Otherwise it leads a session, so that all its
        processes can be found. With `adopts`, orphans that this process has adopted count as the
        child's. Those that are here already are killed with the child, but not waited for: the
        kernel may hold one for ever, such as an nvidia-smi on a broken GPU.
        """
        self._terminal, self._adopts, self.ignores = terminal, adopts, ignores
        self.status: int | None = None
        self.on_end: Callable[[int], None] = lambda _: None
        self.oom_kills = OomKills()
        self._older = {(one.pid, one.started) for one in living_processes()} if adopts else set()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(_run(run, terminal=terminal, ignores=ignores))
        _running[self.pid] = self

    def tell(self, number: int) -> bool:
        """Send a signal to the child and its group; return False if that is not permitted.

        That happens if the child runs as another user, and this process is not root.
        """
        try:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:  # the child does not lead a group yet
                os.kill(self.pid, number)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return True

    def kill(self) -> bool:
        """Kill the child and its whole session; return False if that is not permitted."""
        is_told = self.tell(signal.SIGKILL)
        self.kill_rest()
        return is_told

    def end(self) -> None:
        """Kill the process if it still runs, and wait for its end. `on_end` is not called."""
        if self.poll() is None:
            self.on_end = lambda _: None
            self.kill()
            self.wait()

    def kill_rest(self) -> None:
        """Kill the rest of the child's group and session, and wait until it is gone.

        Only then are its ports free for the next child.
        """
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + KILLED_SECONDS
        while self._kill_left() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        collect_ended()

    def _kill_left(self) -> bool:
        """Kill the processes that the child has started; return whether there were any.

        Orphans that are older than the child are killed, too, but do not count.
        """
        killed = False
        for process in living_processes():
            if process.pid != self.pid and self._has_started(process):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, signal.SIGKILL)
                    killed |= (process.pid, process.started) not in self._older
        return killed

    def _has_started(self, process: LivingProcess) -> bool:
        """Whether a process is in the child's session, or was left behind by its processes."""
        is_orphan = process.parent == os.getpid() and process.pid not in _running
        return (self._adopts and is_orphan) or (not self._terminal and process.session == self.pid)

    def poll(self) -> int | None:
        """Return the exit code if it has ended, or minus the signal that killed it; else None."""
        collect_ended()
        return self.status

    def wait(self) -> int:
        """Wait until it has ended; return like `poll`."""
        while (status := self.poll()) is None:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        return status


def _run(run: Callable[[], int], *, terminal: bool, ignores: Collection[int]) -> int:
    """Run in the child: lead a group or session, reset signals, then call the function."""
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
