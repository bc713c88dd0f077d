"""Many rings, one after the other, leave no socket, no thread and no event behind."""

import threading
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from cluster_trainer.collectives.newcomers import Newcomers
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.errors import RingError
from cluster_trainer.collectives.ring.ring import Ring
from harness.held import held
from harness.rings import SECONDS, on_all, outcomes, over_tcp, rings


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.long)])
def test_nothing_stays_behind_after_many_rings(count: int) -> None:
    def work(ring: Ring) -> None:
        total = ring.all_reduce(np.ones(100, np.float32))
        assert total[0] == 2
        ring.barrier()
        ring.close()

    def fail(ring: Ring) -> None:
        if ring.rank == 0:
            ring.abort("a test")
        ring.barrier()

    before = held()
    for turn in range(count):
        with rings(2) as made:
            if turn % 3:
                on_all(made, work)
            else:
                outcomes(made, fail)
    assert held() == before


class MeetingPlace:
    """Connects two workers in a ring whenever both have come."""

    def __init__(self) -> None:
        self._rings = 0
        self._both = threading.Barrier(2, self._connect)

    def _connect(self) -> None:
        self._rings += 1
        self._pairs = [over_tcp(), over_tcp()]

    def meet(self, rank: int) -> Ring:
        self._both.wait(SECONDS)
        return Ring(rank, 2, self._rings, self._pairs[rank - 1][1], self._pairs[rank][0])


def regroup(ring: RenewableRing, how: str) -> None:
    """Sum, let the ring end well, be aborted or break, and continue in another ring."""
    with suppress(RingError):  # the other rank may have ended it already
        assert ring.all_reduce(np.ones(100, np.float32))[0] == 2
        if how == "aborted" and ring.rank == 0:
            ring.abort("a test")
        if how == "broken" and ring.rank == 1:
            ring.close()
        ring.barrier()
    ring.renew()


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.long)])
def test_nothing_stays_behind_of_rings_that_were_renewed(count: int) -> None:
    before = held()
    place = MeetingPlace()
    ways = [partial(place.meet, rank) for rank in range(2)]
    made = on_all(ways, lambda meet: RenewableRing(meet, 2, looks=Newcomers()))
    first = held()
    for turn in range(count):
        how = ("well", "aborted", "broken")[turn % 3]
        on_all(made, partial(regroup, how=how))
    assert held() == first
    assert {ring.generation for ring in made} == {count + 1}
    for ring in made:
        ring.close()
    assert held() == before
