"""Looking up host names in threads that nobody waits for."""

from __future__ import annotations

import signal
import socket
import threading
from collections import deque
from collections.abc import Callable

AT_ONCE = 32
"""Names that are asked for at the same time."""

Endpoint = tuple[socket.AddressFamily, tuple[str | int, ...]]
"""What a socket connects to: a family and its form of an address, the IP address first."""

Found = list[Endpoint] | Exception
"""The endpoints of a name, each once, or why it has none."""


class NoThreadError(Exception):
    """No thread can be had to look up a name: this says nothing about the name."""


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
                self._start()
            if self._threads:
                return
            self._waiting.pop()
        hand_over(NoThreadError())

    def _start(self) -> None:
        """Start one more thread; without it those that run take the name.

        It takes no signals: a lookup may outlast the start, and would take them from whoever
        supervises the command by then.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            threading.Thread(target=self._work, daemon=True).start()
        except RuntimeError:  # a limit of processes
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._threads += 1

    def _work(self) -> None:
        """Look up names until none is left."""
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


def look_up(host: str, port: int) -> Found:
    """Ask for a name's endpoints, for as long as that takes."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that IDNA cannot encode
        return error
    endpoints = [(entry[0], entry[4]) for entry in found]
    return list(dict.fromkeys(endpoints))  # type: ignore[arg-type]
