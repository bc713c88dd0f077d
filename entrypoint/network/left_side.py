"""Answers the left neighbour, which measures its link to this worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Sequence

from entrypoint.network.link import BITS
from entrypoint.network.protocol import DATA, PIECE, PING, PONG, RATE, Effort

FAREWELL_SECONDS = 0.5
"""The time in which the left neighbour must read the last answer."""


class LeftSide:
    """The connection to the left neighbour: reads its data, and answers."""

    def __init__(self, connection: socket.socket, effort: Effort) -> None:
        self._connection, self._effort = connection, effort
        self._loop = asyncio.get_running_loop()
        self._saying = asyncio.Lock()

    async def say(self, answer: dict[str, object]) -> None:
        """Send a line to the left neighbour. If it has gone, another worker reports it."""
        line = json.dumps(answer).encode() + b"\n"
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._effort.patience_seconds), self._saying:
                await self._loop.sock_sendall(self._connection, line)

    async def answer(self) -> None:
        """Answer the left neighbour's pings and its data."""
        unread = b""
        with contextlib.suppress(OSError):
            while not unread.startswith(DATA) and len(unread) < PIECE:
                if not (chunk := await self._more()):
                    return
                unread += chunk
                while unread.startswith(PING):
                    unread = unread.removeprefix(PING)
                    await self.say({PONG: 1})
            arrivals = await self._arrivals(len(unread))
            await self.say({RATE: bits_per_second(arrivals)})

    async def _more(self) -> bytes:
        return await self._loop.sock_recv(self._connection, PIECE)

    async def _arrivals(self, there: int) -> list[tuple[float, int]]:
        """Return the arrival times of the data, with the bytes received until then."""
        total, room = there, bytearray(PIECE)
        arrivals = [(time.monotonic(), total)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._effort.data_seconds):
                while total < self._effort.data_bytes:
                    count = await self._loop.sock_recv_into(self._connection, room)
                    if not count:
                        break
                    total += count
                    arrivals.append((time.monotonic(), total))
                    await asyncio.sleep(0)  # this worker's own data are sent at the same time
        return arrivals

    async def part(self) -> None:
        """Wait until the left neighbour has read the last answer, and has closed the connection."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                while await self._more():
                    pass


def bits_per_second(arrivals: Sequence[tuple[float, int]]) -> float:
    """Return the rate of the second half of the data.

    In the first half, TCP's slow start or a limited network's burst would distort it.
    """
    (_, first), (end, total) = arrivals[0], arrivals[-1]
    half = first + (total - first) / 2
    begin, before = next(one for one in arrivals if one[1] >= half)
    if end <= begin:  # only one piece
        begin, before = arrivals[0]
    return BITS * (total - before) / max(end - begin, 1e-9)
