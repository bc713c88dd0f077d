"""Looks up host names in daemon threads that are never joined."""

from __future__ import annotations

import signal
import socket
import threading
from collections import deque
from collections.abc import Callable

AT_ONCE = 256
"""The number of simultaneous look-ups: large, so that slow ones do not delay the others."""

Endpoint = tuple[socket.AddressFamily, tuple[str | int, ...]]
"""An address for a socket: its family, and the family's notation with the IP address first."""

Found = list[Endpoint] | Exception
"""The endpoints of a name without duplicates, or the reason why it has none."""


UNDECIDED = (socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_SYSTEM, socket.EAI_MEMORY)
"""Errors that say nothing about the name: no server answers, a server fails, or memory is short."""


class NoThreadError(Exception):
    """No thread could be started for a look-up. This says nothing about the name."""


def is_open(found: Found) -> bool:
    """Whether a name may exist: no name server has answered, or no look-up could start."""
    is_silent = isinstance(found, socket.gaierror) and found.errno in UNDECIDED
    return is_silent or isinstance(found, NoThreadError)


class LookUps:
    """A queue of names to look up, and the threads that look them up.

    getaddrinfo cannot be cancelled, and a name server that does not answer blocks it for many
    seconds. So the threads are daemons, and are never joined. (asyncio and concurrent.futures join
    their threads.)
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, int, Callable[[Found], None]]] = deque()
        self._threads = 0
        self._lock = threading.Lock()

    def ask(self, host: str, port: int, hand_over: Callable[[Found], None]) -> None:
        """Look up a name; a thread calls `hand_over` with the result.

        If no thread can be started at all, `hand_over` is called at once with a NoThreadError.
        """
        with self._lock:
            self._waiting.append((host, port, hand_over))
            if self._threads < AT_ONCE:
                self._threads += _start(self._work)
            if self._threads:
                return
            self._waiting.pop()
        hand_over(NoThreadError())

    def _work(self) -> None:
        while waiting := self._next():
            host, port, hand_over = waiting
            hand_over(look_up(host, port))

    def _next(self) -> tuple[str, int, Callable[[Found], None]] | None:
        """Take the next name; if there is none, the thread ends and is no longer counted."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None


def _start(work: Callable[[], None]) -> bool:
    """Start a thread; return False if a limit prevents it.

    The thread blocks all signals. A look-up may outlast the start, and would then receive
    signals that are meant for the supervisor.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        threading.Thread(target=work, daemon=True).start()
    except RuntimeError:  # a limit of processes
        return False
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return True


def look_up(host: str, port: int) -> Found:
    """Look up a name's endpoints, without a time limit."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that IDNA cannot encode
        return error
    endpoints = [(entry[0], entry[4]) for entry in found]
    return list(dict.fromkeys(endpoints))  # type: ignore[arg-type]
