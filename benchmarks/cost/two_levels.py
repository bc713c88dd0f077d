"""What sums would cost in a ring of rings, which is not built."""

import math

from entrypoint.network.cost import Costs, Network, sum_seconds


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
