"""A model of the cost of a step on 2 to 1,000 workers that sum gradients over the ring.

It follows the trainer's `collectives/ring/sums.py`, which sums in three ways:

- Two ranks send each other everything, in one hop.
- Small sums: each rank sends its numbers to all others, in `size - 1` hops, if no rank sends more
  than 256 KB in total.
- Otherwise the numbers are divided into `size` chunks, which go round twice, in `2 (size - 1)`
  hops.

A hop takes as long as the slower of the network and the processor needs for its bytes. A rank
passes data on as soon as it has 64 KB. So the latency counts only if it exceeds that time.
`benchmarks/cost` measures the processor's part, and checks the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SMALL_BYTES, GRAIN = 2**18, 2**16
"""The ring's constants, in bytes: the limit for sums that go to all others, and the size of
pieces."""
NUMBER_BYTES = 4
"""The size of a float32."""
NEAR_BYTES = 4_000_000
"""A larger sum does not fit into a processor's caches."""


@dataclass(frozen=True)
class Costs:
    """The processor time that a sum takes on each worker, in seconds."""

    sum: float
    """For each sum."""
    hop: float
    """For each hop: system calls and wake-ups."""
    near_byte: float
    """For each byte sent: sending, receiving and adding it."""
    far_byte: float
    """The same, if the sum is larger than NEAR_BYTES."""
    rounded: float = 0.0
    """For each number that is sent as bfloat16."""

    def byte(self, size: float) -> float:
        """Return the time for a byte in a sum of this size."""
        return self.far_byte if size > NEAR_BYTES else self.near_byte

    def shared(self, times: float) -> Costs:
        """Return the costs if this number of workers shares a processor."""
        shared_by = max(1.0, times)
        numbers = (self.sum, self.hop, self.near_byte, self.far_byte, self.rounded)
        return Costs(*(number * shared_by for number in numbers))


TYPICAL = Costs(sum=1e-4, hop=3e-5, near_byte=4e-10, far_byte=1e-9, rounded=3e-9)
"""Measured by `python -m benchmarks.cost` on a virtual machine with two processors."""


@dataclass(frozen=True)
class Network:
    """The network between two neighbours."""

    bits_a_second: float = math.inf
    """The rate in each direction, in bits per second."""
    latency: float = 0.0
    """Seconds until a sent byte arrives."""


@dataclass(frozen=True)
class Way:
    """The way in which a sum is computed."""

    hops: int
    """The number of hops, one after the other."""
    bytes_a_hop: float
    """The bytes that each worker sends, and receives, in each hop."""

    @property
    def bytes(self) -> float:
        """The bytes that a worker sends in all."""
        return self.hops * self.bytes_a_hop


def way_of(workers: int, size: float, *, bfloat16: bool = False) -> Way:
    """Return how the ring sums this number of float32 bytes on each worker.

    `bfloat16`: whether they are sent as bfloat16. The way still depends on their float32 size.
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
    """Return the duration of a sum that all workers begin at once."""
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
    """Return the scaling efficiency: the speed, divided by N times the speed of one worker.

    One worker computes for `step_seconds`, then all sum for `sums_seconds`. `spread` is the
    standard deviation of a worker's step, relative to its duration. All wait for the slowest of n
    workers, which is about √(2 ln n) standard deviations slower than the mean.
    """
    slowest = step_seconds * (1 + spread * math.sqrt(2 * math.log(workers)))
    return step_seconds / (slowest + sums_seconds)
