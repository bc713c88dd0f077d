"""A model of what a step costs on 2 to 1,000 workers whose gradients go round the ring.

It follows `collectives/ring/sums.py`, of which there are three ways:

- two ranks send each other everything, in one hop;
- as long as no rank sends more than 256 KB by it, each rank's numbers go to all others, in
  size - 1 hops;
- else chunks of a size-th go round twice, in 2 (size - 1) hops.

A hop takes as long as its bytes do, at the network's rate or the processor's, whichever is slower.
What has come in is passed on as soon as 64 KB of it are there, so that a hop's latency is seen only
where it is longer than the hop's bytes take. The processor's part is measured (`measured.py`).
"""

import math
from dataclasses import dataclass

from cluster_trainer.collectives.ring.ring import SMALL_BYTES
from cluster_trainer.collectives.ring.streams import GRAIN

NUMBER_BYTES = 4
"""Of a float32."""
NEAR_BYTES = 4_000_000
"""A sum that is longer does not stay in a processor's caches."""


@dataclass(frozen=True)
class Costs:
    """What a worker's processor takes for a sum, in seconds.

    Attributes:
        sum: for any.
        hop: for each hop: calls of the kernel, and being woken.
        near_byte: for each byte sent: sending, receiving and adding it.
        far_byte: the same, where the sum is longer than NEAR_BYTES.
        rounded: for each number that travels as bfloat16.
    """

    sum: float
    hop: float
    near_byte: float
    far_byte: float
    rounded: float = 0.0

    def byte(self, size: float) -> float:
        """Return what a byte takes in a sum of so many."""
        return self.far_byte if size > NEAR_BYTES else self.near_byte

    def shared(self, times: float) -> "Costs":
        """Return the costs where so many workers share a processor."""
        shared_by = max(1.0, times)
        numbers = (self.sum, self.hop, self.near_byte, self.far_byte, self.rounded)
        return Costs(*(number * shared_by for number in numbers))


@dataclass(frozen=True)
class Network:
    """Between two neighbours.

    Attributes:
        bits_a_second: in each direction at once.
        latency: seconds until a byte that was sent is there.
    """

    bits_a_second: float = math.inf
    latency: float = 0.0


@dataclass(frozen=True)
class Way:
    """How a sum is made.

    Attributes:
        hops: one after the other.
        bytes_a_hop: that each worker sends, and receives, in each.
    """

    hops: int
    bytes_a_hop: float

    @property
    def bytes(self) -> float:
        """All that a worker sends."""
        return self.hops * self.bytes_a_hop


def way_of(workers: int, size: float, *, bfloat16: bool = False) -> Way:
    """Return how the ring sums numbers.

    Args:
        workers: how many.
        size: bytes of the float32 numbers that each has.
        bfloat16: what they travel as; it is the sum's size as float32 that decides the way.
    """
    sent = size / 2 if bfloat16 else size
    if workers == 1:
        return Way(0, 0.0)
    if workers == 2:  # noqa: PLR2004  a pair
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


def two_levels_seconds(
    costs: Costs, network: Network, workers: int, size: float, *, bfloat16: bool = False
) -> float:
    """Return how long a sum would take in groups, and between groups, which is not built.

    Each worker of a group of about √workers sums a chunk over its group, then the chunk with its
    like in all other groups; then the group's chunks go round. The bytes are nearly the same, and
    the hops 2 (group - 1) + 2 (groups - 1).
    """
    group = next(count for count in range(math.isqrt(workers), 0, -1) if workers % count == 0)
    if group in (1, workers):
        return sum_seconds(costs, network, workers, size, bfloat16=bfloat16)
    within = sum_seconds(costs, network, group, size, bfloat16=bfloat16)
    between = sum_seconds(costs, network, workers // group, size / group, bfloat16=bfloat16)
    return within + between


def share_of_ideal(step_seconds: float, sums_seconds: float, spread: float, workers: int) -> float:
    """Return the examples a second, divided by the workers times what one does alone.

    Args:
        step_seconds: that one worker computes.
        sums_seconds: that all then take together.
        spread: by which part of itself a worker's step differs from one time to the next (one
            standard deviation). All wait for the slowest, which of n is about √(2 ln n) of these
            slower than their mean.
        workers: how many.
    """
    slowest = step_seconds * (1 + spread * math.sqrt(2 * math.log(workers)))
    return step_seconds / (slowest + sums_seconds)
