"""Answers workers that dial this one, and limits the connections of strangers."""

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
"""The pause after accepting failed, for example without a free file descriptor."""

Settle = Callable[[], None]
"""Tells the listener that the connection belongs to a peer, and must be kept."""

Handle = Callable[[Connection, Message, Settle], Awaitable[None]]


class Listener:
    """Accepts connections, exchanges greetings, and hands over workers that introduce themselves.

    Nobody can keep others out: every connection is accepted at once, has a few seconds to identify
    itself, and can only displace connections like itself (`Strangers`).
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
                    await asyncio.sleep(0)  # connected workers are served, however many come
                except OSError:
                    await asyncio.sleep(PAUSE_SECONDS)

    async def close(self) -> None:
        """Close the port and drop the strangers, so that nothing occupies the port."""
        strangers = [self._tasks[connection] for connection in self._strangers]
        for connection in self._strangers:
            connection.forget()
        if self._running:
            strangers.append(self._running)
        for task in strangers:
            task.cancel()
        await asyncio.gather(*strangers, return_exceptions=True)
        for connection in tuple(self._strangers):  # connections whose task had not started yet
            async with connection:
                self._strangers.discard(connection)

    async def close_all(self) -> None:
        """Close the port, and end every connection that came through it."""
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
        """Identify the other side; errors of a stranger are ignored."""
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
"""Places in addition to one for each worker. All workers may come at the same moment."""

IPV6_HOST_BITS = 64
"""A host with one IPv6 address can use 2^64 of them (RFC 4291, section 2.5.4)."""


class Strangers:
    """Connections of unknown programs, with a limited number of places.

    When all places are taken, the address with the most connections loses its oldest one. So a
    flood from one address displaces only connections from that address. A worker at the same
    address has as long to identify itself as the flood needs to fill all places again.
    """

    def __init__(self, workers: int) -> None:
        self._places = workers + MOST_STRANGERS
        self._senders: dict[Connection, str] = {}
        self._crowds: dict[str, dict[Connection, None]] = {}

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._senders)

    def add(self, connection: Connection) -> Connection | None:
        """Give a new connection a place; return the connection that it displaces, if any."""
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
    """Return the part of an address that one sender cannot choose freely."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:  # the sender has gone already, without an address
        return ip
    if isinstance(address, ipaddress.IPv6Address):
        return f"{int(address) >> IPV6_HOST_BITS:x}::/64"
    return ip
