"""Sums that a thread begins run in the background, in their order."""

import gc
import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from cluster_trainer.collectives.rehearsal import Rehearsal
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.background import Background
from cluster_trainer.collectives.ring.errors import Aborted, PeerLost, RingError
from cluster_trainer.collectives.ring.ring import Ring
from harness.played import VALUES, Peer, messages
from harness.rings import on_all, rings

SECONDS = 10.0
((HEAD, CONTENT),) = messages("sum")
sizes = pytest.mark.parametrize("size", [1, 2, 3, 5])


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer(time_limit_seconds=SECONDS)
    yield made
    made.end()


def of_rank(rank: int, turn: int) -> np.ndarray:
    return np.random.default_rng([rank, turn]).normal(size=997 * turn).astype(np.float32)


@sizes
@pytest.mark.parametrize("wire", [None, "bfloat16"])
def test_they_have_the_same_bits_as_others(size: int, wire: str | None) -> None:
    def at_once(ring: Ring) -> list[bytes]:
        begun = [ring.begin_all_reduce(of_rank(ring.rank, turn), wire=wire) for turn in range(6)]
        return [one.result(SECONDS).tobytes() for one in begun]

    def in_turn(ring: Ring) -> list[bytes]:
        return [ring.all_reduce(of_rank(ring.rank, turn), wire=wire).tobytes() for turn in range(6)]

    with rings(size) as made:
        found, expected = on_all(made, at_once), on_all(made, in_turn)
    assert found == expected


@sizes
def test_every_other_operation_waits_for_them(size: int) -> None:
    def work(ring: Ring) -> list[object]:
        values = np.full(300_000, ring.rank + 1, np.int64)
        begun = [ring.begin_all_reduce(values) for _ in range(3)]
        gathered = ring.all_gather(bytes([ring.rank]))
        begun.append(ring.begin_all_reduce(values))
        ring.barrier()
        begun.append(ring.begin_all_reduce(values))
        held = ring.broadcast(b"held" if ring.rank == 0 else None, 0)
        assert all(one.done() for one in begun)
        total = ring.all_reduce(values)
        return [gathered, held, total[0], {int(one.result()[-1]) for one in begun}]

    with rings(size) as made:
        found = on_all(made, work)
    total = size * (size + 1) // 2
    assert found == [[[bytes([rank]) for rank in range(size)], b"held", total, {total}]] * size


def test_who_begins_one_goes_on_at_once(peer: Peer) -> None:
    begun = peer.ring.begin_all_reduce(VALUES)
    assert not begun.done()
    peer.data.send(HEAD.pack() + CONTENT)
    assert (begun.result(SECONDS) == 2 * VALUES).all()


def test_arguments_of_no_use_are_refused_where_they_are_given(peer: Peer) -> None:
    with pytest.raises(ValueError, match="accepted are"):
        peer.ring.begin_all_reduce(np.zeros((2, 2), np.float32))
    with pytest.raises(ValueError, match="float8"):
        peer.ring.begin_all_reduce(VALUES, wire="float8")
    assert peer.ring.operations == 0


def test_all_that_were_begun_fail_when_a_peer_dies(peer: Peer) -> None:
    begun = [peer.ring.begin_all_reduce(VALUES) for _ in range(3)]
    peer.data.send(HEAD.pack() + CONTENT[:100])
    peer.die()
    problems = [one.exception(SECONDS) for one in begun]
    assert {type(problem) for problem in problems} == {PeerLost}
    assert {problem.rank for problem in problems} == {1}
    with pytest.raises(PeerLost):
        peer.ring.barrier()


def test_an_abort_ends_them() -> None:
    with rings(2) as made:
        begun = made[0].begin_all_reduce(VALUES)
        made[0].abort("a test")
        assert isinstance(begun.exception(SECONDS), Aborted)
        assert isinstance(made[1].begin_all_reduce(VALUES).exception(SECONDS), Aborted)


def test_closing_does_not_wait_for_the_others() -> None:
    with rings(2) as made:
        begun = [made[0].begin_all_reduce(VALUES) for _ in range(3)]
        began = time.monotonic()
        made[0].close()
        assert time.monotonic() - began < 1
        for one in begun:
            assert "closed" in str(one.exception(0))
        with pytest.raises(RingError, match="closed"):
            made[0].begin_all_reduce(VALUES)
        lost = made[1].begin_all_reduce(VALUES).exception(SECONDS)
        assert isinstance(lost, PeerLost)
        assert lost.rank == 0


def test_their_thread_ends_with_the_ring() -> None:
    before = threading.active_count()
    with rings(3) as made:
        on_all(made, lambda ring: ring.begin_all_reduce(VALUES).result(SECONDS))
        assert "ring-sums" in {one.name for one in threading.enumerate()}
    assert threading.active_count() == before


def test_a_sums_memory_is_used_again_once_nobody_refers_to_it() -> None:
    def places(ring: Ring) -> set[int]:
        found = set()
        for _ in range(20):
            begun = [ring.begin_all_reduce(np.ones(300_000, np.float32)) for _ in range(4)]
            found |= {one.result(SECONDS).ctypes.data for one in begun}
        return found

    with rings(2) as made:
        for found in on_all(made, places):
            assert len(found) <= 12  # of 80


def test_a_ring_that_is_renewed_and_one_that_is_rehearsed_begin_them_too() -> None:
    ring = RenewableRing(lambda: Ring(0, 1, 1), most=3)
    assert (ring.begin_all_reduce(VALUES).result(0) == VALUES).all()
    with ring.rehearsed():
        assert (ring.begin_all_reduce(VALUES).result(0) == 3 * VALUES).all()
    assert (Rehearsal(2).begin_all_reduce(VALUES).result(0) == 2 * VALUES).all()


class Large:
    """An object with weak references."""


def test_nothing_of_a_call_is_held_after_it() -> None:
    background = Background("a-test")
    future = background.submit(Large)
    background.wait()
    seen = weakref.ref(future.result(0))
    del future
    gc.collect()
    assert seen() is None
    background.end()


def test_a_call_may_wait_for_the_others_which_are_over_by_then() -> None:
    """As an operation of the ring does, whichever thread calls it."""
    background = Background("a-test")
    assert background.submit(background.wait).result(SECONDS) is None
    background.end()


def test_what_a_call_raises_is_the_askers() -> None:
    background = Background("a-test")
    problem = KeyError("a test")

    def fail() -> None:
        raise problem

    assert background.submit(fail).exception(SECONDS) is problem
    assert background.submit(lambda: 7).result(SECONDS) == 7
    background.end()


def test_who_waits_after_the_end_does_not_wait() -> None:
    background = Background("a-test")
    background.submit(int)
    background.end()
    waiting = threading.Thread(target=background.wait, daemon=True)
    waiting.start()
    waiting.join(SECONDS)
    assert not waiting.is_alive()


def test_where_no_thread_can_start_it_is_said_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    background = Background("a-test")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            background.submit(int)
        background.end()
    assert background.submit(int).result(SECONDS) == 0
    background.end()


def test_without_a_call_there_is_no_thread() -> None:
    before = threading.active_count()
    background = Background("a-test")
    background.wait()
    background.end()
    assert threading.active_count() == before
