"""Measures the links of a ring, over this worker's two connections with its neighbours.

All workers do this at the same time, as in a sum of gradients:

1. Each sends pings to the right neighbour, which answers them.
2. All exchange the round trips. This is also a barrier: no data delay the pings.
3. Each sends data to the right neighbour. Once that has enough, it answers with the rate.
4. All exchange the rates.

Data only go to the right. Answers go to the left, where no data delay them: one JSON object per
line. Every step has a time limit. The first worker whose right neighbour is silent reports that to
the left, and the report goes round the ring.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from dataclasses import dataclass

from entrypoint.network.left_side import LeftSide
from entrypoint.network.protocol import ERROR, TOLD, Effort, MeasuringError
from entrypoint.network.right_side import RightSide


@dataclass(frozen=True)
class Measured:
    """The link from one rank to the next."""

    round_trip_seconds: float
    bits_per_second: float


async def measure(
    rank: int, size: int, left: socket.socket, right: socket.socket, effort: Effort
) -> list[Measured]:
    """Return the links of the ring, beginning with rank 0 to rank 1; close both connections.

    Raises MeasuringError, which names the same rank on all workers that can be reached.
    """
    for connection in (left, right):
        connection.setblocking(False)  # noqa: FBT003 -- socket's own signature
    to_left = LeftSide(left, effort)
    to_right = RightSide(right, (rank + 1) % size, size, effort)
    tasks = [asyncio.create_task(to_left.answer()), asyncio.create_task(to_right.hear())]
    try:
        circle = _Circle(rank, size, to_left, to_right)
        trips = await circle.share(await to_right.round_trip())
        rates = await circle.share(await to_right.rate())
        return [Measured(*both) for both in zip(trips, rates, strict=True)]
    except MeasuringError as error:
        await to_left.say({ERROR: [error.rank, error.reason]})
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        _forget(right)
        if not isinstance(sys.exception(), asyncio.CancelledError):
            await to_left.part()
        _forget(left)


@dataclass(frozen=True)
class _Circle:
    """This worker's place in the ring."""

    rank: int
    size: int
    to_left: LeftSide
    to_right: RightSide

    async def share(self, mine: float) -> list[float]:
        """Return the numbers of all ranks.

        They go round to the left twice. The first time, each worker adds its own, so rank 0 has
        all.
        """
        found = [mine]
        if self.rank < self.size - 1:
            found += await self.to_right.told(self.size - 1 - self.rank)
        if self.rank:
            await self.to_left.say({TOLD: found})
            found = await self.to_right.told(self.size)
        if self.rank != 1:
            await self.to_left.say({TOLD: found})
        return found


def _forget(connection: socket.socket) -> None:
    """Close a connection, and discard unsent data."""
    with contextlib.suppress(OSError):
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    connection.close()
