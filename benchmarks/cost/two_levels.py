"""Estimates the cost of sums in a ring of rings, which is not implemented."""

import math

from entrypoint.network.cost import Costs, Network, sum_seconds


def two_levels_seconds(
    costs: Costs, network: Network, workers: int, size: float, *, bfloat16: bool = False
) -> float:
    """Return the time of a sum within groups, and between groups.

    A group has about √workers workers. Each worker sums a chunk over its group, and then over the
    corresponding workers of all other groups. At the end, the group's chunks go round the group.
    The traffic is nearly that of one ring, with only 2 (group - 1) + 2 (groups - 1) hops.
    """
    group = next(count for count in range(math.isqrt(workers), 0, -1) if workers % count == 0)
    if group in (1, workers):
        return sum_seconds(costs, network, workers, size, bfloat16=bfloat16)
    within = sum_seconds(costs, network, group, size, bfloat16=bfloat16)
    between = sum_seconds(costs, network, workers // group, size / group, bfloat16=bfloat16)
    return within + between
