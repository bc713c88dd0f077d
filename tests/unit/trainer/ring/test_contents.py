"""Bytes of any length are gathered and broadcast. A barrier waits for all ranks."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_trainer.collectives.ring.ring import Ring
from harness.rings import on_all, outcomes, rings

sizes = pytest.mark.parametrize("size", range(2, 9))


@sizes
def test_gathers_what_each_rank_has_in_their_order(size: int) -> None:
    values = [bytes([rank]) * rank**5 for rank in range(size)]
    with rings(size) as made:
        for found in on_all(made, lambda ring: ring.all_gather(values[ring.rank])):
            assert found == values


@given(values=st.lists(st.binary(max_size=100), min_size=2, max_size=4))
@settings(max_examples=25)
def test_gathers_anything(values: list[bytes]) -> None:
    with rings(len(values)) as made:
        for found in on_all(made, lambda ring: ring.all_gather(values[ring.rank])):
            assert found == values


def test_gathers_an_arrays_bytes() -> None:
    with rings(2) as made:
        found = on_all(made, lambda ring: ring.all_gather(np.array([ring.rank], np.int64)))
    assert [np.frombuffer(value, np.int64)[0] for value in found[0]] == [0, 1]


@sizes
@pytest.mark.parametrize("length", [0, 1, 3_000_001])
def test_broadcasts_from_any_rank(size: int, length: int) -> None:
    content = np.random.default_rng(length).bytes(length)
    with rings(size) as made:
        for holder in range(size):
            found = on_all(
                made,
                lambda ring, holder=holder: ring.broadcast(
                    content if ring.rank == holder else None, holder
                ),
            )
            assert found == [content] * size


def test_a_barrier_waits_for_the_last() -> None:
    came, left = [], []
    late = threading.Event()

    def meet(ring: Ring) -> None:
        if ring.rank == 1:
            late.wait(10)
        came.append(ring.rank)
        ring.barrier()
        left.append(len(came))

    with rings(4) as made:
        threading.Timer(0.1, late.set).start()
        on_all(made, meet)
    assert left == [4] * 4


def test_operations_of_all_kinds_follow_one_another() -> None:
    def run(ring: Ring) -> list[object]:
        found: list[object] = []
        for turn in range(5):
            found.append(ring.all_reduce(np.ones(turn * 9000, np.float32)).sum())
            found.append(ring.all_gather(b"x" * turn))
            ring.barrier()
            found.append(ring.broadcast(b"y" if ring.rank == turn % 3 else None, turn % 3))
        return found

    with rings(3) as made:
        first, *others = on_all(made, run)
    assert others == [first, first]


def test_refuses_a_broadcast_that_nobody_holds() -> None:
    with rings(2) as made:
        found = outcomes(made, lambda ring: ring.broadcast(None, 2))
        assert [str(problem) for problem in found] == ["holder 2: ranks are 0 to 1"] * 2
        with pytest.raises(ValueError, match="rank 0 holds the content"):
            made[0].broadcast(None, 0)


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_refuses_a_rank_outside_of_the_ring(rank: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"rank {rank} of a ring of {size}"):
        Ring(rank, size, 0)


def test_refuses_a_ring_without_connections() -> None:
    with pytest.raises(ValueError, match="a ring of 2 needs two sockets"):
        Ring(0, 2, 0)


def test_a_closed_ring_says_so() -> None:
    with rings(2) as made:
        made[0].close()
        made[0].close()
        begin = time.monotonic()
        with pytest.raises(Exception, match="this ring was closed"):
            made[0].barrier()
        assert time.monotonic() - begin < 1
