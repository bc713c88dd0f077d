"""A model of what a step costs on 2 to 1,000 workers whose gradients go round the ring.

It follows the trainer's `collectives/ring/sums.py`, which has three ways:

- two ranks send each other everything, in one hop;
- as long as no rank sends more than 256 KB by it, each rank's numbers go to all others, in
  size - 1 hops;
- else chunks of a size-th go round twice, in 2 (size - 1) hops.

A hop takes as long as its bytes do, at the network's rate or the processor's, whichever is slower.
What has come in is passed on as soon as 64 KB of it are there, so a hop's latency only shows if it
is longer than the hop's bytes take. `benchmarks/cost` measures the processor's part, and checks the
model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SMALL_BYTES, GRAIN = 2**18, 2**16
"""The ring's own numbers: the most bytes that a rank sends to all others, and those that have come
in before it passes them on."""
NUMBER_BYTES = 4
"""Of a float32."""
NEAR_BYTES = 4_000_000
"""A sum that is longer does not stay in a processor's caches."""


@dataclass(frozen=True)
class Costs:
    """What a worker's processor takes for a sum, in seconds."""

    sum: float
    """For any."""
    hop: float
    """For each hop: calls of the kernel, and being woken."""
    near_byte: float
    """For each byte sent: sending, receiving and adding it."""
    far_byte: float
    """The same, where the sum is longer than NEAR_BYTES."""
    rounded: float = 0.0
    """For each number that travels as bfloat16."""

    def byte(self, size: float) -> float:
        """Return what a byte takes in a sum of so many."""
        return self.far_byte if size > NEAR_BYTES else self.near_byte

    def shared(self, times: float) -> Costs:
        """Return the costs where so many workers share a processor."""
        shared_by = max(1.0, times)
        numbers = (self.sum, self.hop, self.near_byte, self.far_byte, self.rounded)
        return Costs(*(number * shared_by for number in numbers))


TYPICAL = Costs(sum=1e-4, hop=3e-5, near_byte=4e-10, far_byte=1e-9, rounded=3e-9)
"""Measured by `python -m benchmarks.cost` on a virtual machine with two processors."""


@dataclass(frozen=True)
class Network:
    """Between two neighbours."""

    bits_a_second: float = math.inf
    """In each direction at once."""
    latency: float = 0.0
    """Seconds until a byte that was sent is there."""


@dataclass(frozen=True)
class Way:
    """How a sum is made."""

    hops: int
    """One after the other."""
    bytes_a_hop: float
    """What each worker sends, and receives, in each."""

    @property
    def bytes(self) -> float:
        """All that a worker sends."""
        return self.hops * self.bytes_a_hop


def way_of(workers: int, size: float, *, bfloat16: bool = False) -> Way:
    """Return how the ring sums numbers of so many bytes, as float32, on each of the workers.

    `bfloat16` is what they travel as; their size as float32 decides the way.
    """
    sent = size / 2 if bfloat16 else size
    if workers == 1:
        return Way(0, 0.0)
    if workers == 2:  # noqa: PLR2004 -- a pair
        return Way(1, sent)
    if size * (workers - 1) > SMALL_BYTES:
        return Way(2 * (workers - 1), sent / workers)
    return Way(workers - 1, sent)


def sum_seconds(
    costs: Costs, network: Network, workers: int, size: float, *, bfloat16: bool = False
) -> float:
    """Return how long a sum takes when all workers begin it at once."""
    way = way_of(workers, size, bfloat16=bfloat16)
    if not way.hops:
        return 0.0
    fixed = costs.sum + (costs.rounded * size / NUMBER_BYTES if bfloat16 else 0.0)
    a_byte = max(8 / network.bits_a_second, costs.byte(size))
    its_bytes = way.bytes_a_hop * a_byte
    until_passed_on = network.latency + min(way.bytes_a_hop, GRAIN) * a_byte
    hop = costs.hop + max(its_bytes, until_passed_on)
    return fixed + way.hops * hop + (network.latency if way.hops > 1 else 0.0)


def share_of_ideal(step_seconds: float, sums_seconds: float, spread: float, workers: int) -> float:
    """Return the examples a second, divided by the workers times what one does alone.

    One worker computes for `step_seconds`, then all sum for `sums_seconds`. `spread` is by which
    part of itself a worker's step differs from one time to the next (one standard deviation). All
    wait for the slowest, which of n is about √(2 ln n) of these slower than their mean.
    """
    slowest = step_seconds * (1 + spread * math.sqrt(2 * math.log(workers)))
    return step_seconds / (slowest + sums_seconds)
