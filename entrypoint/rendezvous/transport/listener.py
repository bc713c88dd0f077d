"""Answering those who dial this worker, strangers among them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable

from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.messages import HELLOS, Message
from entrypoint.rendezvous.transport.network import Port, Wire
from entrypoint.rendezvous.transport.reasons import NO_MESSAGE, PeerError, WrongTokenError
from entrypoint.rendezvous.transport.strangers import Strangers
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
        for connection in tuple(self._strangers):  # those whose task had not begun yet
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
