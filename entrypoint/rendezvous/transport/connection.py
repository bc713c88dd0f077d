"""One connection between two workers: greetings, then signed messages, each with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from entrypoint.cluster.addresses import Address
from entrypoint.rendezvous.transport import reasons, signing
from entrypoint.rendezvous.transport.messages import (
    LONGEST_LINE,
    Message,
    MessageError,
    decode,
    encode,
)
from entrypoint.rendezvous.transport.network import Connector, Wire
from entrypoint.rendezvous.transport.reasons import ClosedError, PeerError
from entrypoint.rendezvous.transport.timing import Timing

MOST_UNREAD = 16
"""The number of chunks that are read and ignored after a refusal."""


class Connection:
    """A wire between two workers. `async with` closes it, unless it was handed over.

    Methods raise PeerError, whose message is the reason. Any task may send or hang up. Only the
    task that opened the connection may close it: if a socket is closed while another task waits for
    it, asyncio may confuse it with a later socket.
    """

    def __init__(self, wire: Wire, token: str | None, timing: Timing) -> None:
        self._wire, self._token, self._timing = wire, token, timing
        self._received = bytearray()
        self._sending = asyncio.Lock()
        self._signer: signing.Signer | None = None
        self._is_given_away = False
        self.ip = wire.ip

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.hang_up()
        async with self._sending:
            self._wire.close()

    async def greet(self, *, is_dialer: bool) -> None:
        """Exchange greetings. The listener sends first, so a dialer tells a stranger nothing."""
        own = signing.new_nonce()
        if not is_dialer:
            await self._write(signing.greeting(own))
        other = signing.read_greeting(await self._greeting())
        if is_dialer:
            await self._write(signing.greeting(own))
        dialer, listener = (own, other) if is_dialer else (other, own)
        self._signer = signing.Signer(
            self._token,
            dialer=dialer,
            listener=listener,
            is_dialer=is_dialer,
        )

    async def send(self, message: Message) -> None:
        """Send a message."""
        if self._signer is None:
            raise ClosedError(reasons.CLOSED)
        async with self._sending:
            await self._write(self._signer.sign(encode(message)))

    async def receive(self, seconds: float | None) -> Message:
        """Return the next message; wait at most `seconds` (None: no limit)."""
        if self._signer is None:
            raise ClosedError(reasons.CLOSED)
        return decode(self._signer.verify(await self._line(seconds)))

    async def ask(self, message: Message, seconds: float | None) -> Message:
        """Send a message and return the next one, like `receive`.

        If sending fails, the other side may already have sent the reason, which is returned.
        """
        with contextlib.suppress(ClosedError):
            await self.send(message)
        return await self.receive(seconds)

    async def refuse(self) -> None:
        """Report a wrong token to the other side, in a line that does not use this side's token."""
        await self._write(signing.REFUSAL)
        await self.dismiss()

    async def dismiss(self) -> None:
        """End the connection so that the last message arrives: wait for the other side's end.

        Closing a socket with unread data resets the connection, and may lose sent data.
        """
        self.hang_up(at_once=False)
        with contextlib.suppress(OSError):  # includes TimeoutError
            async with asyncio.timeout(self._timing.message_seconds):
                for _ in range(MOST_UNREAD):
                    if not await self._wire.read():
                        return

    def hang_up(self, *, at_once: bool = True) -> None:
        """End the connection; with `at_once=False` the other side may finish sending."""
        self._wire.hang_up(at_once=at_once)

    def forget(self) -> None:
        """Leave no TCP state behind after the close. It would occupy the port."""
        self._wire.forget()

    def hand_over(self) -> socket.socket:
        """Hand the socket over. Data for its next reader is still unread."""
        self._is_given_away = True
        return self._wire.hand_over()

    async def _greeting(self) -> bytes:
        """Return the other side's greeting. From a stranger, only the first bytes are read."""
        try:
            async with asyncio.timeout(self._timing.greeting_seconds):
                while not (line := self._cut()):
                    await self._read()
                    if not signing.may_be_greeting(self._received):
                        raise PeerError(reasons.not_a_worker(bytes(self._received)))
        except TimeoutError:
            raise PeerError(reasons.NO_GREETING) from None
        except ClosedError:
            raise ClosedError(reasons.CLOSED_AT_ONCE) from None
        return line

    async def _line(self, seconds: float | None) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                while not (line := self._cut()):
                    if len(self._received) > LONGEST_LINE:
                        raise MessageError
                    await self._read()
        except TimeoutError:
            raise PeerError(reasons.SILENT) from None
        return line

    def _cut(self) -> bytes:
        """Take the first whole line from the received bytes; no line is empty."""
        line, newline, rest = self._received.partition(b"\n")
        if not newline:
            return b""
        self._received = rest
        if not line or len(line) > LONGEST_LINE:
            raise MessageError
        return bytes(line)

    async def _read(self) -> None:
        """Wait for more bytes. Bytes after the end of a line are not read (`hand_over`)."""
        try:
            chunk = await self._wire.read()
        except OSError:
            chunk = b""
        if not chunk:
            raise ClosedError(reasons.CLOSED)
        self._received += chunk

    async def _write(self, line: bytes) -> None:
        """Send bytes. If that fails, it is unknown how many were sent, so the connection ends."""
        try:
            if self._is_given_away:
                raise ClosedError(reasons.CLOSED)
            async with asyncio.timeout(self._timing.message_seconds):
                await self._wire.write(line)
        except OSError:  # includes TimeoutError
            self.hang_up()
            raise ClosedError(reasons.CLOSED) from None


class Dialer:
    """Dials at most `at_once` workers at the same time. Other dials wait."""

    def __init__(
        self, connector: Connector, token: str | None, timing: Timing, at_once: int = 1
    ) -> None:
        self._connector, self._token, self._timing = connector, token, timing
        self._places = asyncio.Semaphore(at_once)

    @contextlib.asynccontextmanager
    async def dial(self, address: Address) -> AsyncIterator[Connection]:
        """Return a connection after the exchange of greetings. Raises PeerError."""
        async with contextlib.AsyncExitStack() as stack:
            async with self._places:
                wire = await self._connector.connect(address)
                connection = Connection(wire, self._token, self._timing)
                await stack.enter_async_context(connection)
                await connection.greet(is_dialer=True)
            yield connection
