"""Measures the link to the right neighbour, and reads its messages."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time

from entrypoint.errors import escaped
from entrypoint.network.protocol import (
    CLOSED,
    DATA,
    ERROR,
    LONGEST_LINE,
    PIECE,
    PING,
    PONG,
    RATE,
    SILENT,
    TOLD,
    WRONG,
    Effort,
    MeasuringError,
)
from entrypoint.strict_json import parse_object

LEAST_PINGS = 3


class RightSide:
    """The connection to the right neighbour, whose number is `rank` of `size`."""

    def __init__(self, connection: socket.socket, rank: int, size: int, effort: Effort) -> None:
        self._connection, self._rank, self._size = connection, rank, size
        self._effort, self._loop = effort, asyncio.get_running_loop()
        self._answers: dict[str, asyncio.Queue[object]] = {
            kind: asyncio.Queue() for kind in (PONG, RATE, TOLD)
        }
        """Its answers. Numbers that it reports may come before its answer to data."""

    async def round_trip(self) -> float:
        """Return the shortest round trip in seconds. Longer ones include waits for a processor."""
        trips: list[float] = []
        began = time.monotonic()
        while len(trips) < self._effort.pings:
            if len(trips) >= LEAST_PINGS and time.monotonic() - began > self._effort.ping_seconds:
                break
            sent = time.monotonic()
            await self._send(PING)
            await self._answer(PONG, self._effort.patience_seconds)
            trips.append(time.monotonic() - sent)
        return min(trips)

    async def rate(self) -> float:
        """Send data until the right neighbour has answered; return the bits per second."""
        await self._send(DATA)
        sending = asyncio.create_task(self._send_on())
        try:
            seconds = self._effort.data_seconds + self._effort.patience_seconds
            rate = await self._answer(RATE, seconds)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        if not isinstance(rate, float):
            raise self._wrong
        return rate

    async def told(self, count: int) -> list[float]:
        """Return the `count` numbers that the right neighbour reports."""
        # This wait is longer than the others. So if a worker is silent, its left neighbour reports
        # it first, and the report arrives here from the right.
        seconds = self._effort.data_seconds + 3 * self._effort.patience_seconds
        told = await self._answer(TOLD, seconds)
        if not isinstance(told, list) or len(told) != count:
            raise self._wrong
        if not all(isinstance(number, float) for number in told):
            raise self._wrong
        return told

    async def _send_on(self) -> None:
        piece = os.urandom(PIECE)  # random, because a tunnel may compress repeated data
        while True:
            await self._send(piece)
            await asyncio.sleep(0)  # data from the left are received at the same time

    async def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the reader of the answers notices the end
            await self._loop.sock_sendall(self._connection, data)

    async def _answer(self, kind: str, seconds: float) -> object:
        """Return the next answer of this kind. Raises MeasuringError."""
        try:
            async with asyncio.timeout(seconds):
                answer = await self._answers[kind].get()
        except TimeoutError:
            raise MeasuringError(self._rank, SILENT) from None
        if isinstance(answer, MeasuringError):
            raise answer
        return answer

    async def hear(self) -> None:
        """Read the answers, until the connection ends."""
        unread = b""
        while len(unread) < LONGEST_LINE:
            try:
                chunk = await self._loop.sock_recv(self._connection, PIECE)
            except OSError:
                chunk = b""
            if not chunk:
                self._end(MeasuringError(self._rank, CLOSED))
                return
            *lines, unread = (unread + chunk).split(b"\n")
            for line in lines:
                self._take(line)
        self._end(self._wrong)

    def _take(self, line: bytes) -> None:
        try:
            ((kind, content),) = parse_object(line.decode()).items()
        except ValueError:  # not JSON, or not exactly one member
            kind, content = "", None
        match content:
            case _ if kind in self._answers:
                self._answers[kind].put_nowait(content)
            case [int(rank), str(reason)] if kind == ERROR and 0 <= rank < self._size:
                self._end(MeasuringError(rank, escaped(reason)))
            case _:
                self._end(self._wrong)

    def _end(self, error: MeasuringError) -> None:
        """Record that no more answers come."""
        for answers in self._answers.values():
            answers.put_nowait(error)

    @property
    def _wrong(self) -> MeasuringError:
        return MeasuringError(self._rank, WRONG)
