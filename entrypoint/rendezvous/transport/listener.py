"""Answering those who dial this worker, and the places of those who may be strangers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
from collections.abc import Awaitable, Callable, Iterator

from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.messages import HELLOS, Message
from entrypoint.rendezvous.transport.network import Port, Wire
from entrypoint.rendezvous.transport.reasons import NO_MESSAGE, PeerError, WrongTokenError
from entrypoint.rendezvous.transport.timing import Timing

PAUSE_SECONDS = 0.1
"""After accepting failed, which it does while the process has no free file descriptor."""

Settle = Callable[[], None]
"""Tells the listener that a stranger has become a peer that stays."""

Handle = Callable[[Connection, Message, Settle], Awaitable[None]]


class Listener:
    """Accepts connections, exchanges greetings, and hands over those that introduce themselves.

    Nobody can hold others out: everyone is let in at once, has seconds to become a worker, and
    takes a place away from nobody but its like (`Strangers`).
    """

    def __init__(
        self,
        port: Port,
        strangers: Strangers,
        token: str | None,
        timing: Timing,
        handle: Handle,
    ) -> None:
        self._port, self._strangers, self._handle = port, strangers, handle
        self._token, self._timing = token, timing
        self._tasks: dict[Connection, asyncio.Task[None]] = {}
        self._running: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Accept connections until `close`."""
        self._running = asyncio.current_task()
        with contextlib.closing(self._port):
            while True:
                try:
                    self._take(await self._port.accept())
                    await asyncio.sleep(0)  # however many come, those who are here go on
                except OSError:
                    await asyncio.sleep(PAUSE_SECONDS)

    async def close(self) -> None:
        """Close the port and drop the strangers, so that nothing holds on to the port."""
        strangers = [self._tasks[connection] for connection in self._strangers]
        for connection in self._strangers:
            connection.forget()
        if self._running:
            strangers.append(self._running)
        for task in strangers:
            task.cancel()
        await asyncio.gather(*strangers, return_exceptions=True)
        for connection in tuple(self._strangers):  # those whose task had not run yet
            async with connection:
                self._strangers.discard(connection)

    async def close_all(self) -> None:
        """Close the port and end every connection that came through it."""
        await self.close()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, wire: Wire) -> None:
        connection = Connection(wire, self._token, self._timing)
        if crowded_out := self._strangers.add(connection):
            crowded_out.forget()
            crowded_out.hang_up()
        self._tasks[connection] = asyncio.create_task(self._serve(connection))
        self._tasks[connection].add_done_callback(lambda _: self._tasks.pop(connection))

    async def _serve(self, connection: Connection) -> None:
        """Find out who this is; whatever goes wrong with a stranger is its own affair."""
        settle = functools.partial(self._strangers.discard, connection)
        with contextlib.suppress(PeerError):
            try:
                async with connection:
                    hello = await self._hello(connection)
                    await self._handle(connection, hello, settle)
            finally:
                settle()

    async def _hello(self, connection: Connection) -> Message:
        await connection.greet(is_dialer=False)
        try:
            hello = await connection.receive(self._timing.message_seconds)
        except WrongTokenError:
            await connection.refuse()
            raise
        if hello.kind not in HELLOS:
            raise PeerError(NO_MESSAGE)
        return hello


MOST_STRANGERS = 256
"""Places, beside one for each worker: all of those may come at the same moment."""

IPV6_HOST_BITS = 64
"""Whoever has one IPv6 address may as well use 2^64 of them (RFC 4291, section 2.5.4)."""


class Strangers:
    """Connections with a place. Where one is too many, somebody has to go at once.

    It is the oldest of the address that has the most. So a flood from one address crowds out itself
    alone, and whoever shares that address still has as long as it takes to fill all places anew.
    """

    def __init__(self, workers: int) -> None:
        self._places = workers + MOST_STRANGERS
        self._senders: dict[Connection, str] = {}
        self._crowds: dict[str, dict[Connection, None]] = {}

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._senders)

    def add(self, connection: Connection) -> Connection | None:
        """Give a newcomer a place; return the one that has to go for it, if any."""
        sender = sender_of(connection.ip)
        self._senders[connection] = sender
        self._crowds.setdefault(sender, {})[connection] = None
        if len(self._senders) <= self._places:
            return None
        largest = max(self._crowds.values(), key=len)
        oldest = next(iter(largest))
        self.discard(oldest)
        return oldest

    def discard(self, connection: Connection) -> None:
        """Free the place of a connection, if it has one."""
        sender = self._senders.pop(connection, None)
        if sender is None:
            return
        del self._crowds[sender][connection]
        if not self._crowds[sender]:
            del self._crowds[sender]


def sender_of(ip: str) -> str:
    """Return what all addresses have in common that one sender can choose from."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:  # it has gone already, and left no address
        return ip
    if isinstance(address, ipaddress.IPv6Address):
        return f"{int(address) >> IPV6_HOST_BITS:x}::/64"
    return ip
