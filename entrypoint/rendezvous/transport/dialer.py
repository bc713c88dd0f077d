"""Dialling another worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from entrypoint.cluster.addresses import Address
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.network import Connector
from entrypoint.rendezvous.transport.timing import Timing


class Dialer:
    """Dials so many at the same time at most; the others wait for their turn."""

    def __init__(
        self, connector: Connector, token: str | None, timing: Timing, at_once: int = 1
    ) -> None:
        self._connector, self._token, self._timing = connector, token, timing
        self._places = asyncio.Semaphore(at_once)

    @contextlib.asynccontextmanager
    async def dial(self, address: Address) -> AsyncIterator[Connection]:
        """Give a connection on which the greetings were exchanged; raise PeerError."""
        async with contextlib.AsyncExitStack() as stack:
            async with self._places:
                wire = await self._connector.connect(address)
                connection = Connection(wire, self._token, self._timing)
                await stack.enter_async_context(connection)
                await connection.greet(is_dialer=True)
            yield connection
