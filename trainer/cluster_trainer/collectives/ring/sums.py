"""The flows of a sum, and the additions in it; see `streams.py`.

Each number is added in an order that depends on ranks alone. It is added on one rank, or on all
ranks in the same order. So all ranks get the same bits, in every run.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from cluster_trainer.collectives.ring.memory import Memory
from cluster_trainer.collectives.ring.streams import PIECE, Flow

Headers = dict[str, Any]
"""The arguments `head` and `check` of a flow."""


def content(values: np.ndarray) -> memoryview:
    """Return the array's bytes without a copy."""
    return values.view(np.uint8).data


def each_of(values: np.ndarray) -> list[memoryview]:
    """Return the bytes of each number, or of each row, without a copy."""
    return [content(values[index : index + 1].reshape(-1)) for index in range(len(values))]


class AsTheyAre:
    """Numbers that are sent in their own type.

    Attributes:
        own: this rank's own numbers, as they are sent.
        wire: the memory in which other ranks' numbers arrive, and from which they are forwarded.
        total: the sum, once the flow is complete.
    """

    def __init__(self, values: np.ndarray, memory: Memory) -> None:
        self.own = values
        self.wire = self.total = memory.take(values.size, values.dtype)

    def encode(self, first: int, last: int) -> None:
        """Prepare a range of `own` for sending: nothing to do."""

    def pair(self, first: int, last: int, *, mine_first: bool) -> None:
        """Compute the total of two ranks' numbers."""
        own, other = self.own[first:last], self.wire[first:last]
        np.add(*((own, other) if mine_first else (other, own)), out=self.total[first:last])

    def add(self, first: int, last: int, *, is_whole: bool) -> None:  # noqa: ARG002
        """Add this rank's numbers to the received ones."""
        np.add(self.wire[first:last], self.own[first:last], out=self.wire[first:last])

    def keep(self, first: int, last: int) -> None:
        """Take the received numbers as the total."""

    def over(self, rows: np.ndarray) -> np.ndarray:
        """Return the total of all rows, which are in rank order."""
        np.add(rows[0], rows[1], out=self.total)
        for row in rows[2:]:
            np.add(self.total, row, out=self.total)
        return self.total


class AsBfloat16:
    """float32 numbers that are sent as bfloat16: rounded to nearest even; NaN and infinity stay.

    They are added as float32. Forwarded numbers are rounded again. A rank also rounds the numbers
    that it keeps, so that all ranks have the same.
    """

    def __init__(self, values: np.ndarray, memory: Memory) -> None:
        from ml_dtypes import bfloat16  # noqa: PLC0415 -- sums without it need NumPy alone

        dtype = np.dtype(bfloat16)
        self._values, self._encoded = values, 0
        self._wide = memory.take(min(values.size, PIECE), values.dtype)  # as much as can arrive
        self.own, self.wire = memory.take(values.size, dtype), memory.take(values.size, dtype)
        self.total = memory.take(values.size, values.dtype)

    def encode(self, first: int, last: int) -> None:
        """Round a range of this rank's numbers into `own`; ranges must be requested in order."""
        first = max(first, self._encoded)
        if last > first:
            self.own[first:last] = self._values[first:last]
            self._encoded = last

    def pair(self, first: int, last: int, *, mine_first: bool) -> None:
        """Compute the total of two ranks' numbers."""
        self.encode(first, last)
        total, wide = self.total[first:last], self._wide[: last - first]
        total[:] = (self.own if mine_first else self.wire)[first:last]
        wide[:] = (self.wire if mine_first else self.own)[first:last]
        np.add(total, wide, out=total)

    def add(self, first: int, last: int, *, is_whole: bool) -> None:
        """Add this rank's numbers to the received ones, and keep them if they are the whole sum."""
        wide = self._wide[: last - first]
        wide[:] = self.wire[first:last]
        np.add(wide, self._values[first:last], out=wide)
        self.wire[first:last] = wide
        if is_whole:
            self.keep(first, last)

    def keep(self, first: int, last: int) -> None:
        """Take the received numbers as the total."""
        self.total[first:last] = self.wire[first:last]

    def over(self, rows: np.ndarray) -> np.ndarray:
        """Return the total of all rows, which are in rank order."""
        self.total[:] = rows[0]
        for row in rows[1:]:
            self._wide[:] = row
            np.add(self.total, self._wide, out=self.total)
        return self.total


Numbers = AsTheyAre | AsBfloat16


def of_two(numbers: Numbers, rank: int, headers: Headers) -> Flow:
    """Return the flow for two ranks: each sends all numbers, in one hop, and adds the other's."""
    item = numbers.wire.itemsize

    def prepare(_: int, first: int, last: int) -> None:
        numbers.encode(first // item, -(-last // item))

    def handle(_: int, first: int, last: int) -> None:
        numbers.pair(first // item, last // item, mine_first=rank == 0)

    outgoing, incoming = [content(numbers.own)], [content(numbers.wire)]
    return Flow(outgoing, incoming, prepare=prepare, handle=handle, **headers)


def of_many(numbers: Numbers, rank: int, size: int, headers: Headers) -> Flow:
    """Return the flow for many ranks: 2 (size - 1) hops, each with 1 / size of the numbers.

    There is a chunk for each rank, which starts at this rank. Each rank that the chunk passes adds
    its own numbers, until the sum is complete. Then the chunk travels on until all ranks have it
    (the ring all-reduce of Patarasuk and Yuan, 2009).
    """
    item, count = numbers.wire.itemsize, len(numbers.wire)
    bounds = [count * index // size for index in range(size + 1)]
    wire, own = content(numbers.wire), content(numbers.own)
    chunks = [wire[low * item : high * item] for low, high in pairwise(bounds)]
    numbers.encode(bounds[rank], bounds[rank + 1])
    mine = own[bounds[rank] * item : bounds[rank + 1] * item]
    hops = 2 * (size - 1)
    sent = [mine, *(chunks[(rank - hop) % size] for hop in range(1, hops))]
    received = [(rank - hop - 1) % size for hop in range(hops)]

    def handle(hop: int, first: int, last: int) -> None:
        low = bounds[received[hop]]
        span = low + first // item, low + last // item
        if hop < size - 1:
            numbers.add(*span, is_whole=hop == size - 2)
        else:
            numbers.keep(*span)

    incoming = [chunks[index] for index in received]
    return Flow(sent, incoming, free=len(mine), handle=handle, **headers)


def rows_of(numbers: Numbers, rank: int, size: int) -> np.ndarray:
    """Return memory for the numbers of all ranks, [size, n], filled with this rank's row."""
    numbers.encode(0, numbers.own.size)
    rows = np.empty((size, numbers.own.size), numbers.own.dtype)
    rows[rank] = numbers.own
    return rows


def round_trip(places: Sequence[memoryview], rank: int, headers: Headers) -> Flow:
    """Return the flow that brings every rank's bytes to all ranks, in size - 1 hops.

    Args:
        places: the memory for each rank's bytes; this rank's is filled.
        rank: this rank.
        headers: the arguments `head` and `check` of the flow.
    """
    size = len(places)
    order = [places[(rank - hop) % size] for hop in range(size)]
    return Flow(order[:-1], order[1:], free=len(order[0]), **headers)
