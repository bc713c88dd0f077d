"""Looking up host names in threads that nobody waits for."""

from __future__ import annotations

import signal
import socket
import threading
from collections import deque
from collections.abc import Callable

AT_ONCE = 256
"""Names that are asked for at the same time; so many that silent ones do not hold up the others."""

Endpoint = tuple[socket.AddressFamily, tuple[str | int, ...]]
"""What a socket connects to: a family and its form of an address, the IP address first."""

Found = list[Endpoint] | Exception
"""The endpoints of a name, each once, or why it has none."""


UNDECIDED = (socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_SYSTEM, socket.EAI_MEMORY)
"""Errors that say nothing of a name: a server is silent or broken, or something is missing here."""


class NoThreadError(Exception):
    """No thread can be had to look up a name: this says nothing about the name."""


def is_open(found: Found) -> bool:
    """Whether a name may well exist: no name server has answered, or nobody could be asked."""
    is_silent = isinstance(found, socket.gaierror) and found.errno in UNDECIDED
    return is_silent or isinstance(found, NoThreadError)


class LookUps:
    """Names that wait to be looked up, and the threads that do it.

    The threads are daemons that nobody joins (those of asyncio and concurrent.futures would be
    joined): getaddrinfo cannot be cancelled, and a name server that does not answer holds it for
    many seconds.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, int, Callable[[Found], None]]] = deque()
        self._threads = 0
        self._lock = threading.Lock()

    def ask(self, host: str, port: int, hand_over: Callable[[Found], None]) -> None:
        """Have a name looked up; a thread will call `hand_over` with what was found.

        Where no thread can be had at all, it is called at once, with a NoThreadError.
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
        """Take the next name; with none left the thread counts no more."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None


def _start(work: Callable[[], None]) -> bool:
    """Start one more thread; return False where none can be had, and those that run do the work.

    It takes no signals: a lookup may outlast the start, and would take them from whoever supervises
    the command by then.
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
    """Ask for a name's endpoints, for as long as that takes."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that IDNA cannot encode
        return error
    endpoints = [(entry[0], entry[4]) for entry in found]
    return list(dict.fromkeys(endpoints))  # type: ignore[arg-type]
