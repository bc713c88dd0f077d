"""Answering those who dial this worker, strangers among them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.messages import CHECK_IN, PROBE, Message
from entrypoint.rendezvous.transport.reasons import NO_MESSAGE, PeerError, WrongTokenError
from entrypoint.rendezvous.transport.timing import Timing

MOST_STRANGERS = 256
"""Connections that have not shown yet, or not for good, that they are a worker's."""

PAUSE_SECONDS = 0.1
"""After accepting failed, which it does while the process has no free file descriptor."""

Settle = Callable[[], None]
"""Tells the listener that a stranger has become a peer that stays."""

Handle = Callable[[Connection, Message, Settle], Awaitable[None]]


class Listener:
    """Accepts connections, exchanges greetings, and hands over those that introduce themselves.

    Nobody can hold others out: a stranger has seconds to become a worker, there are places for a
    number of them, and where all are taken the oldest goes, but not before it had its chance.
    """

    def __init__(
        self, listener: socket.socket, token: str | None, timing: Timing, handle: Handle
    ) -> None:
        self._listener, self._token, self._timing, self._handle = listener, token, timing, handle
        self._loop = asyncio.get_running_loop()
        self._strangers: dict[Connection, tuple[float, asyncio.Task[None]]] = {}
        self._freed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Accept connections until `close`."""
        self._running = asyncio.current_task()
        with self._listener:
            while True:
                await self._free_place()
                try:
                    self._accept()
                except BlockingIOError:
                    await self._somebody()
                except OSError:
                    await asyncio.sleep(PAUSE_SECONDS)

    async def close(self) -> None:
        """Close the port and drop the strangers, so that nothing holds on to the port."""
        strangers = [task for _, task in self._strangers.values()]
        for connection in self._strangers:
            connection.forget()
        if self._running:
            strangers.append(self._running)
        for task in strangers:
            task.cancel()
        await asyncio.gather(*strangers, return_exceptions=True)
        for connection in tuple(self._strangers):  # those whose task had not begun yet
            async with connection:
                self._settle(connection)

    async def close_all(self) -> None:
        """Close the port and end every connection that came through it."""
        await self.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> None:
        """Accept a connection that is there; raise OSError."""
        accepted, _ = self._listener.accept()
        connection = Connection(accepted, self._token, self._timing)
        task = asyncio.create_task(self._serve(connection))
        self._strangers[connection] = (self._loop.time(), task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _somebody(self) -> None:
        """Wait for a connection. Not `sock_accept`: cancelled, it may fail and drop one (3.11)."""
        there = asyncio.Event()
        self._loop.add_reader(self._listener, there.set)
        try:
            await there.wait()
        finally:
            self._loop.remove_reader(self._listener)

    async def _free_place(self) -> None:
        """Wait until there is a place; the oldest stranger's time comes soon."""
        while len(self._strangers) >= MOST_STRANGERS:
            oldest, (came, _) = next(iter(self._strangers.items()))
            left = came + self._timing.stranger_seconds - self._loop.time()
            if left <= 0:
                oldest.hang_up()
                self._settle(oldest)
            self._freed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, left)):
                    await self._freed.wait()

    def _settle(self, connection: Connection) -> None:
        """Free a stranger's place."""
        self._strangers.pop(connection, None)
        self._freed.set()

    async def _serve(self, connection: Connection) -> None:
        """Find out who this is; whatever goes wrong with a stranger is its own affair."""
        with contextlib.suppress(PeerError):
            try:
                async with connection:
                    hello = await self._hello(connection)
                    await self._handle(connection, hello, lambda: self._settle(connection))
            finally:
                self._settle(connection)

    async def _hello(self, connection: Connection) -> Message:
        """Return the message in which the other says who it is."""
        await connection.greet(is_dialer=False)
        try:
            hello = await connection.receive(self._timing.message_seconds)
        except WrongTokenError:
            await connection.refuse()
            raise
        if hello.kind not in (CHECK_IN, PROBE):
            raise PeerError(NO_MESSAGE)
        return hello
