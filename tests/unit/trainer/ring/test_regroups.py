"""Rings come and go without end: no socket, no thread, no event stays behind."""

import threading
from pathlib import Path

import numpy as np
import pytest

from cluster_trainer.collectives.ring.ring import Ring
from harness.rings import on_all, outcomes, rings


def held() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


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
