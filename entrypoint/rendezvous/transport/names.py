"""Looking up host names without ever waiting for a name server longer than a bound."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import queue
import socket
import threading
from dataclasses import dataclass

from entrypoint.cluster.addresses import Address
from entrypoint.rendezvous.transport.reasons import NO_NAME, NO_NAME_SERVER, PeerError

AT_ONCE = 32
"""Names that are asked for at the same time."""

MOST_ENDPOINTS = 4
"""Addresses of one name that are dialled in turn."""


@dataclass(frozen=True)
class Endpoint:
    """What a socket connects to."""

    family: socket.AddressFamily
    address: tuple[str, int] | tuple[str, int, int, int]


Answer = asyncio.Future[list[Endpoint] | str]
"""Where to connect to, or the reason why that is not known."""


class Names:
    """The names of one attempt.

    The threads are daemons that nobody joins (asyncio's own would be joined): getaddrinfo cannot be
    cancelled, and a name server that does not answer holds it for many seconds.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[tuple[Address, Answer]] = queue.SimpleQueue()
        self._answers: dict[Address, Answer] = {}
        self._threads = 0

    async def look_up(self, address: Address) -> list[Endpoint]:
        """Return where to connect to; raise PeerError."""
        if literal := _literal(address):
            return [literal]
        if address not in self._answers:
            self._answers[address] = self._loop.create_future()
            self._waiting.put((address, self._answers[address]))
            self._start()
        try:
            async with asyncio.timeout(self._seconds):
                answer = await asyncio.shield(self._answers[address])
        except TimeoutError:
            raise PeerError(NO_NAME_SERVER) from None
        if isinstance(answer, str):
            raise PeerError(answer)
        return answer

    def forget(self, address: Address) -> None:
        """Ask anew next time: what is being looked up may be from before the name was there."""
        self._answers.pop(address, None)

    def _start(self) -> None:
        """Start a thread if there is work for one more."""
        if self._threads < AT_ONCE and not self._waiting.empty():
            self._threads += 1
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        """Look up names until none is left."""
        # RuntimeError: the attempt has ended meanwhile, and its loop is closed.
        with contextlib.suppress(RuntimeError):
            while True:
                try:
                    address, future = self._waiting.get_nowait()
                except queue.Empty:
                    break
                answer = _ask(address)
                self._loop.call_soon_threadsafe(self._answered, address, future, answer)
            self._loop.call_soon_threadsafe(self._ended)

    def _answered(self, address: Address, future: Answer, answer: list[Endpoint] | str) -> None:
        """Hand an answer to those who wait for it; the next who asks gets a new one."""
        future.set_result(answer)
        if self._answers.get(address) is future:
            del self._answers[address]

    def _ended(self) -> None:
        """Note that a thread has ended; a name that came just then gets another."""
        self._threads -= 1
        self._start()


def _literal(address: Address) -> Endpoint | None:
    """Return the endpoint of an IP address, None for a name."""
    try:
        version = ipaddress.ip_address(address.host).version
    except ValueError:
        return None
    family = socket.AF_INET if version == 4 else socket.AF_INET6  # noqa: PLR2004
    return Endpoint(family, (address.host, address.port))


def _ask(address: Address) -> list[Endpoint] | str:
    """Return a name's endpoints, or why there are none."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return NO_NAME_SERVER if error.errno == socket.EAI_AGAIN else NO_NAME
    except (OSError, UnicodeError):  # UnicodeError: a name that IDNA cannot encode
        return NO_NAME
    endpoints = [Endpoint(entry[0], entry[4]) for entry in found]  # type: ignore[arg-type]
    return list(dict.fromkeys(endpoints))[:MOST_ENDPOINTS]
