"""Dialling another worker."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.look_ups import Endpoint
from entrypoint.rendezvous.transport import signing
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.names import Names
from entrypoint.rendezvous.transport.reasons import PeerError, words
from entrypoint.rendezvous.transport.timing import Timing

NO_SUCH_PROTOCOL = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""What a machine without IPv6 says of the IPv6 address that a name has, too (localhost: ::1)."""


class Dialer:
    """Dials so many at the same time at most; the others wait for their turn."""

    def __init__(  # noqa: PLR0913 -- as whom, and how
        self,
        names: Names,
        token: str | None,
        timing: Timing,
        at_once: int,
        *,
        purpose: signing.Purpose = signing.GATE,
        prepare: Callable[[socket.socket], None] = lambda _: None,
    ) -> None:
        """Keep what is needed; `prepare` is given each socket before it connects."""
        self._names, self._token, self._timing = names, token, timing
        self._purpose, self._prepare = purpose, prepare
        self._places = asyncio.Semaphore(at_once)

    @contextlib.asynccontextmanager
    async def dial(self, address: Address) -> AsyncIterator[Connection]:
        """Give a connection on which the greetings were exchanged; raise PeerError."""
        async with contextlib.AsyncExitStack() as stack:
            async with self._places:
                connected = await connect(self._names, address, self._timing, self._prepare)
                connection = Connection(connected, self._token, self._timing, self._purpose)
                await stack.enter_async_context(connection)
                await connection.greet(is_dialer=True)
            yield connection


async def connect(
    names: Names,
    address: Address,
    timing: Timing,
    prepare: Callable[[socket.socket], None] = lambda _: None,
) -> socket.socket:
    """Return a connected socket, to the first of the name's addresses that answers.

    `prepare` is given each socket before it connects. Raises PeerError, with the reason of one that
    this machine can send to at all.
    """
    reason = ""
    for endpoint in await names.look_up(address):
        try:
            return await _connect_to(endpoint, timing.connect_seconds, prepare)
        except OSError as error:  # TimeoutError is one
            if not reason or error.errno not in NO_SUCH_PROTOCOL:
                reason = words(error)
    raise PeerError(reason)


async def _connect_to(
    endpoint: Endpoint, seconds: float, prepare: Callable[[socket.socket], None]
) -> socket.socket:
    """Return a connected socket; raise OSError."""
    family, address = endpoint
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        prepare(connecting)
        connecting.settimeout(0)
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().sock_connect(connecting, address)
        refuse_itself(connecting)
    except BaseException:
        connecting.close()
        raise
    return connecting


def refuse_itself(connected: socket.socket) -> None:
    """Raise OSError for a socket that is connected with itself.

    On one machine a dialer may be given the very port that it dials as its own, and where nothing
    listens there TCP connects the two (simultaneous open, RFC 9293, section 3.5).
    """
    if connected.getsockname() == connected.getpeername():
        raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
