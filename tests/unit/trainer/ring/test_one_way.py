"""Where the network is cut in one direction only, all ranks fail in time."""

import socket
import time

import numpy as np
import pytest

from cluster_trainer.collectives.ring.errors import PeerLost
from cluster_trainer.collectives.ring.ring import Ring
from harness.rings import lose_what_arrives, on_all, outcomes, over_tcp, rings

LIMIT_SECONDS = 1.0
LIMITS = {"time_limit_seconds": LIMIT_SECONDS, "first_sign_seconds": LIMIT_SECONDS}
# Time beyond the limit: the kernel checks its timers now and then, and the machine may be busy.
LATER_SECONDS = 4.0
DEAF, LEFT, RIGHT = 1, 0, 1


def connections(ring: Ring) -> list[socket.socket]:
    return ring._sockets  # noqa: SLF001


def train(ring: Ring) -> None:
    """Sum again and again, as in training, until a sum fails."""
    while True:
        ring.all_reduce(np.ones(50_000, np.float32))
        time.sleep(0.005)


@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.long), 3])
@pytest.mark.parametrize(
    ("ends", "neighbours"),
    [([LEFT, RIGHT], {0, 1, 2}), ([LEFT], {0, 1}), ([RIGHT], {1, 2})],
    ids=["from everybody", "from its left neighbour", "from its right neighbour"],
)
def test_where_a_rank_hears_nothing_any_more_all_fail_in_time(
    size: int, ends: list[int], neighbours: set[int]
) -> None:
    with rings(size, over_tcp, **LIMITS) as made:
        on_all(made, Ring.barrier)
        for end in ends:
            lose_what_arrives(connections(made[DEAF])[end])
        begin = time.monotonic()
        found = outcomes(made, train)
        seconds = time.monotonic() - begin
    print(f"{seconds:.2f} s", *found, sep="\n")
    assert [type(problem) for problem in found] == [PeerLost] * size
    assert {problem.rank for problem in found} <= {rank % size for rank in neighbours}
    assert LIMIT_SECONDS / 2 < seconds < LIMIT_SECONDS + LATER_SECONDS
