"""The flows of a sum; see `streams.py` and `number_formats.py`.

Each number is added in an order that depends on ranks alone. It is added on one rank, or on all
ranks in the same order. So all ranks get the same bits, in every run.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from cluster_trainer.collectives.ring.number_formats import Numbers
from cluster_trainer.collectives.ring.streams import Flow

Headers = dict[str, Any]
"""The arguments `head` and `check` of a flow."""


def content(values: np.ndarray) -> memoryview:
    """Return the array's bytes without a copy."""
    return values.view(np.uint8).data


def each_of(values: np.ndarray) -> list[memoryview]:
    """Return the bytes of each number, or of each row, without a copy."""
    return [content(values[index : index + 1].reshape(-1)) for index in range(len(values))]


def of_two(numbers: Numbers, rank: int, headers: Headers) -> Flow:
    """Return the flow for two ranks: each sends all numbers, in one hop, and adds the other's."""
    item = numbers.received.itemsize

    def prepare(_: int, first: int, last: int) -> None:
        numbers.encode(first // item, -(-last // item))

    def handle(_: int, first: int, last: int) -> None:
        numbers.pair(first // item, last // item, mine_first=rank == 0)

    outgoing, incoming = [content(numbers.own)], [content(numbers.received)]
    return Flow(outgoing, incoming, prepare=prepare, handle=handle, **headers)


def of_many(numbers: Numbers, rank: int, size: int, headers: Headers) -> Flow:
    """Return the flow for many ranks: 2 (size - 1) hops, each with 1 / size of the numbers.

    There is a chunk for each rank, which starts at this rank. Each rank that the chunk passes adds
    its own numbers, until the sum is complete. Then the chunk travels on until all ranks have it
    (the ring all-reduce of Patarasuk and Yuan, 2009).
    """
    item, count = numbers.received.itemsize, len(numbers.received)
    bounds = [count * index // size for index in range(size + 1)]
    arriving, own = content(numbers.received), content(numbers.own)
    chunks = [arriving[low * item : high * item] for low, high in pairwise(bounds)]
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
