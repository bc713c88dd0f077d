"""A child process in a session of its own: starting it, telling it signals, ending all of it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from entrypoint.supervision.out_of_memory import OomKills

STOPS = (signal.SIGTERM, signal.SIGINT)
"""What asks a command to end, within its grace."""
FORWARDED = (*STOPS, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
AWAITED = (*FORWARDED, signal.SIGCHLD, signal.SIGTTOU)
"""Blocked in this process and taken by `next_signal`. SIGTTOU: whoever gives a terminal away from
the background would be stopped by it."""
KILLED_SECONDS = 5.0
"""How long a killed process may take to be gone: the kernel has its memory to give back first."""
POLL_SECONDS = 0.01
PROC = Path("/proc")
STATE_FIELD = 0
SESSION_FIELD = 3
"""Of /proc/PID/stat, counted from the state, which follows the name (proc(5))."""


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


class ChildProcess:
    """A process that was forked from this one, and whatever it starts."""

    def __init__(self, run: Callable[[], int], *, terminal: bool = False) -> None:
        """Fork; the child runs the function, and ends with what it returns.

        With a terminal it stays in the session and gets the foreground, so that Ctrl-C reaches it
        and not us; else it leads a session, so that whatever it starts can be found again.
        """
        self._terminal = terminal
        self.oom_kills = OomKills()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(_run(run, terminal=terminal))

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
        while not self._terminal and self._kill_session() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _kill_session(self) -> bool:
        """Kill what is in the child's session; return whether there was something to kill."""
        killed = False
        for pid in session_members(self.pid):
            if pid != self.pid:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                    killed = True
        return killed

    def poll(self) -> int | None:
        """Return the exit code if it has ended, minus the signal if one killed it; else None."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def wait(self) -> int:
        """Wait until it has ended; return as `poll` does."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _run(run: Callable[[], int], *, terminal: bool) -> int:
    """Be the child: a group or session of its own, signals as usual, then the function."""
    try:
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


def session_members(session: int) -> Iterator[int]:
    """Yield the living processes of a session, whatever their groups and parents are."""
    for process in PROC.iterdir():
        if process.name.isdigit() and _session(process) == session:
            yield int(process.name)


def _session(process: Path) -> int | None:
    """Return a process's session, None if it has ended."""
    try:
        # The name, in parentheses, may hold anything.
        fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[STATE_FIELD] == b"Z" else int(fields[SESSION_FIELD])
