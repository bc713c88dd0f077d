"""Any fault of a neighbour ends the ring in time, with an error that names the neighbour."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cluster_trainer.collectives.ring import control
from cluster_trainer.collectives.ring.errors import (
    Aborted,
    OtherCall,
    OutOfStep,
    PeerLeft,
    PeerLost,
    Refused,
    RingError,
)
from cluster_trainer.collectives.ring.headers import HEADER, Operation, Record, Word
from cluster_trainer.collectives.ring.ring import Ring
from harness.played import ALIVE, LIMIT_SECONDS, VALUES, Peer, messages
from harness.rings import on_all, outcomes, over_tcp, rings

((HEAD, CONTENT),) = messages("sum")
MESSAGE = HEAD.pack() + CONTENT


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.end()


def test_a_peer_that_does_as_agreed_is_understood(peer: Peer) -> None:
    peer.data.send(MESSAGE)
    assert (peer.ring.all_reduce(VALUES) == 2 * VALUES).all()


@pytest.mark.parametrize("count", [0, 1, HEADER.size - 1, HEADER.size, 100, len(MESSAGE) - 1])
def test_a_peer_that_dies_after_any_byte_is_lost(peer: Peer, count: int) -> None:
    peer.data.send(MESSAGE[:count])
    peer.die()
    begin = time.monotonic()
    with pytest.raises(PeerLost, match="rank 1 was lost: the connection to it: closed") as caught:
        peer.ring.all_reduce(VALUES)
    assert caught.value.rank == 1
    assert time.monotonic() - begin < 1


@pytest.mark.parametrize("count", [0, HEADER.size, len(MESSAGE) - 1])
def test_a_peer_that_stands_still_after_any_byte_is_lost(peer: Peer, count: int) -> None:
    peer.data.send(MESSAGE[:count])
    begin = time.monotonic()
    with pytest.raises(PeerLost, match=r"rank 1 was lost: no heartbeat for 0\.3 s"):
        peer.ring.all_reduce(VALUES)
    assert time.monotonic() - begin < 5 * LIMIT_SECONDS


def test_a_peer_may_take_longer_to_begin() -> None:
    left, data = socket.socketpair()
    right, beside = socket.socketpair()
    limits = {"time_limit_seconds": LIMIT_SECONDS, "first_sign_seconds": 2 * LIMIT_SECONDS}
    begin = time.monotonic()
    with Ring(0, 2, 1, left, right, **limits) as ring, data, beside:
        with pytest.raises(PeerLost, match=r"no heartbeat for 0\.6 s"):
            ring.barrier()
        assert time.monotonic() - begin > 2 * LIMIT_SECONDS


def test_a_peer_is_not_given_less_time_to_begin_than_to_be_silent() -> None:
    left, data = socket.socketpair()
    right, beside = socket.socketpair()
    limits = {"time_limit_seconds": 2 * LIMIT_SECONDS, "first_sign_seconds": LIMIT_SECONDS}
    begin = time.monotonic()
    with Ring(0, 2, 1, left, right, **limits) as ring, data, beside:
        with pytest.raises(PeerLost, match=r"no heartbeat for 0\.6 s"):
            ring.barrier()
        assert time.monotonic() - begin > 2 * LIMIT_SECONDS


def test_a_peer_that_only_computes_for_long_is_waited_for(peer: Peer) -> None:
    peer.live()
    threading.Timer(2 * LIMIT_SECONDS, peer.data.send, [MESSAGE]).start()
    assert (peer.ring.all_reduce(VALUES) == 2 * VALUES).all()


def test_a_process_that_stood_still_itself_blames_nobody(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stood_still = [0.0]
    moments = SimpleNamespace(monotonic=lambda: time.monotonic() + stood_still[0])
    monkeypatch.setattr(control, "time", moments)
    peer.live()
    for _ in range(10):  # like a process that is stopped, or sleeps, again and again
        stood_still[0] += 100 * LIMIT_SECONDS
        time.sleep(LIMIT_SECONDS / 15)  # so that its watching thread looks once or twice
    assert peer.ring.error is None
    peer.data.send(MESSAGE)
    assert (peer.ring.all_reduce(VALUES) == 2 * VALUES).all()


def test_one_that_stands_still_again_and_again_still_notices_a_silent_peer(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = SimpleNamespace(monotonic=lambda: 20 * time.monotonic())
    monkeypatch.setattr(control, "time", moments)
    with pytest.raises(PeerLost, match="no heartbeat"):
        peer.ring.all_reduce(VALUES)


def test_only_the_connection_to_the_left_ends_where_nothing_is_acknowledged() -> None:
    """Data for the right neighbour may wait there while it computes."""
    with rings(2, over_tcp, time_limit_seconds=7) as made:
        option = socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT
        limits = [[end.getsockopt(*option) for end in ring._sockets] for ring in made]  # noqa: SLF001
    assert limits == [[7000, 0], [7000, 0]]


def test_a_signal_handler_may_abort_at_any_moment() -> None:
    """It may run at any point of the same thread, even while that thread notes another failure."""
    with rings(2) as made:
        fate = made[0]._fate  # noqa: SLF001
        tell = fate.tell

        def interrupted(error: RingError) -> None:
            fate.tell = tell
            made[0].abort("by a handler")
            tell(error)

        fate.tell = interrupted
        made[0].abort("first")
        found = outcomes(made, Ring.barrier)
    assert [type(problem) for problem in found] == [Aborted, Aborted]


@pytest.mark.parametrize("size", [2, 3])
def test_a_refusal_reaches_all_ranks_with_its_reason(size: int) -> None:
    with rings(size) as made:
        made[0].refuse("the step fails on a share")
        found = outcomes(made, Ring.barrier)
    assert [type(problem) for problem in found] == [Refused] * size
    assert "refused by rank 0: the step fails on a share" in str(found[1])


def test_a_long_reason_arrives_cut() -> None:
    with rings(2) as made:
        made[0].abort("ü" * 5000)
        found = outcomes(made, Ring.barrier)
    assert isinstance(found[1], Aborted)
    assert "ü" * 400 in str(found[1])


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 2},
        {"operation": 2},
        {"rank": 0},
        {"size": 3},
    ],
)
def test_who_is_somewhere_else_is_out_of_step(peer: Peer, change: dict[str, int]) -> None:
    peer.data.send(replace(HEAD, **change).pack() + VALUES.tobytes())
    with pytest.raises(OutOfStep, match=r"the left neighbour calls operation .* this rank calls"):
        peer.ring.all_reduce(VALUES)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": Operation.BARRIER}, "waits for all"),
        ({"kind": Operation.SIZES}, "gathers"),
        ({"kind": Operation.BROADCAST}, "has a broadcast of rank 0"),
        ({"kind": 77}, "has an operation of unknown kind 77"),
        ({"detail": 1}, "sums 500 numbers of float32, sent as bfloat16"),
        ({"detail": 2}, "sums 500 numbers of float64"),
        ({"detail": 99}, "sums 500 numbers of unknown type 99"),
        ({"length": 501}, "sums 501 numbers of float32"),
    ],
)
def test_who_does_something_else_there_runs_another_program_or_has_other_settings(
    peer: Peer, change: dict[str, int], words: str
) -> None:
    peer.data.send(replace(HEAD, what="training", **change).pack() + VALUES.tobytes())
    with pytest.raises(OtherCall) as caught:
        peer.ring.all_reduce(VALUES, what="training")
    assert f"at training the worker of rank 1 {words}, that of rank 0 sums" in str(caught.value)
    assert "TRAINER_WIRE" in str(caught.value)
    assert caught.value.rank == 1


def test_who_is_at_another_call_is_told_in_words_what_each_is_at(peer: Peer) -> None:
    peer.data.send(replace(HEAD, kind=Operation.SIZES, what="predict (outputs)").pack())
    with pytest.raises(OtherCall) as caught:
        peer.ring.all_reduce(VALUES, what="training (gradients)")
    assert "the worker of rank 1 is at predict (outputs)" in str(caught.value)
    assert "that of rank 0 at training (gradients)" in str(caught.value)
    assert caught.value.rank == 1


@pytest.mark.parametrize("change", [{"generation": 2}, {"operation": 2}, {"size": 3}])
def test_who_is_in_another_ring_is_not_taken_for_one_at_another_call(
    peer: Peer, change: dict[str, int]
) -> None:
    peer.data.send(replace(HEAD, what="predict", **change).pack())
    with pytest.raises(OutOfStep) as caught:
        peer.ring.all_reduce(VALUES, what="training")
    assert type(caught.value) is OutOfStep


CALLS = {
    "sum": lambda ring, what: ring.all_reduce(VALUES, what=what),
    "gather": lambda ring, what: ring.all_gather(b"x", what=what),
    "broadcast": lambda ring, what: ring.broadcast(b"x" if ring.rank == 0 else None, 0, what=what),
    "barrier": lambda ring, what: ring.barrier(what=what),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("size", [2, 3])
def test_all_are_told_that_one_is_at_another_call(size: int, call: Callable[..., object]) -> None:
    def run(ring: Ring) -> None:
        call(ring, "predict" if ring.rank == 1 else "evaluate")
        ring.barrier()  # a rank that only sends has noticed nothing yet

    with rings(size) as made:
        found = outcomes(made, run)
    assert [type(problem) for problem in found] == [OtherCall] * size
    for problem in found:
        assert "predict" in str(problem)
        assert "evaluate" in str(problem)


def test_the_same_call_with_the_same_words_is_the_same() -> None:
    def run(ring: Ring) -> list[object]:
        return [call(ring, f"{name}, in 32 bytes".ljust(32, ".")) for name, call in CALLS.items()]

    with rings(3) as made:
        on_all(made, run)


def test_words_that_a_header_cannot_hold_are_refused_before_anything_is_sent() -> None:
    with rings(2) as made:
        with pytest.raises(ValueError, match="is too long; accepted: 32 bytes"):
            made[0].barrier(what="x" * 33)
        on_all(made, Ring.barrier)


@pytest.mark.parametrize(
    "said",
    [b"x" * 100, Record(Word.ALIVE, 1, 1, 2).pack(), b"WORD\x63" + ALIVE[5:]],
    ids=["garbage", "another generation", "an unknown word"],
)
def test_records_that_make_no_sense_are_seen(peer: Peer, said: bytes) -> None:
    peer.beside.send(said)
    with pytest.raises(OutOfStep, match="rank 1"):
        peer.ring.all_reduce(VALUES)


def test_a_record_may_come_in_pieces(peer: Peer) -> None:
    for place in range(len(ALIVE)):
        peer.beside.send(ALIVE[place : place + 1])
        time.sleep(0.001)
    peer.data.send(MESSAGE)
    peer.ring.all_reduce(VALUES)


def test_a_length_beyond_all_memory_is_refused(peer: Peer) -> None:
    head = replace(HEAD, kind=Operation.BROADCAST, detail=1, length=2**62)
    peer.data.send(head.pack())
    with pytest.raises(OutOfStep):
        peer.ring.broadcast(None, 1)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_an_abort_from_another_thread_ends_the_wait_on_all_ranks(size: int) -> None:
    begin = []

    def wait(ring: Ring) -> float:
        if ring.rank == 0:
            return 0.0
        with pytest.raises(Aborted, match="aborted by rank 0: the supervisor asked") as caught:
            ring.all_reduce(VALUES)
        assert caught.value.rank == 0
        return time.monotonic() - begin[0]

    def abort() -> None:
        begin.append(time.monotonic())
        made[0].abort("the supervisor asked")

    with rings(size) as made:
        threading.Timer(0.05, abort).start()
        assert max(on_all(made, wait)) < 0.5


def test_the_thread_that_waits_is_woken_at_once() -> None:
    seconds = []
    for _ in range(5):  # the machine may be busy with something else
        with rings(2) as made:
            waiting = threading.Thread(target=outcomes, args=([made[1]], Ring.barrier))
            waiting.start()
            time.sleep(0.02)
            begin = time.monotonic()
            made[1].abort("a test")
            waiting.join()
            seconds.append(time.monotonic() - begin)
    assert min(seconds) < 0.05


@pytest.mark.parametrize("size", [2, 3, 6])
def test_a_lost_rank_is_named_on_all_others(size: int) -> None:
    pairs = [socket.socketpair() for _ in range(size)]
    lost = size - 1
    made = [
        Ring(rank, size, 1, pairs[rank - 1][1], pairs[rank][0])
        for rank in range(size)
        if rank != lost
    ]
    threading.Timer(0.05, lambda: [pairs[lost - 1][1].close(), pairs[lost][0].close()]).start()
    found = outcomes(made, lambda ring: ring.all_reduce(np.ones(100_000, np.float32)))
    for ring in made:
        ring.close()
    assert [type(problem) for problem in found] == [PeerLost] * (size - 1)
    assert [problem.rank for problem in found] == [lost] * (size - 1)


def test_an_error_within_an_operation_is_told_to_the_others() -> None:
    def fail(ring: Ring) -> None:
        if ring.rank == 1:
            ring._links.exchange = lambda _: 1 / 0  # noqa: SLF001
        ring.barrier()

    with rings(3) as made:
        found = outcomes(made, fail)
    assert isinstance(found[1], ZeroDivisionError)
    for problem in (found[0], found[2]):
        assert isinstance(problem, Aborted)
        assert "rank 1: ZeroDivisionError within an operation: division by zero" in str(problem)


def test_who_leaves_early_is_named_by_who_goes_on() -> None:
    def run(ring: Ring) -> None:
        ring.barrier()
        if ring.rank == 1:
            ring.close()
        else:
            ring.barrier()

    with rings(3) as made:
        found = outcomes(made, run)
    for problem in (found[0], found[2]):
        assert isinstance(problem, PeerLost)
        assert problem.rank == 1


def test_who_has_left_before_an_operation_is_lost_to_it(peer: Peer) -> None:
    peer.beside.send(Record(Word.LEFT, 1, 1, 1, number=1).pack())
    peer.data.send(MESSAGE)
    assert (peer.ring.all_reduce(VALUES) == 2 * VALUES).all()
    with pytest.raises(PeerLeft, match="rank 1 left after operation 1, this is operation 2"):
        peer.ring.all_reduce(VALUES)


@pytest.mark.parametrize("size", [2, 3])
def test_that_one_waits_no_longer_is_told_to_all(size: int) -> None:
    """The others do not call it lost, because it has ended well."""
    with rings(size) as made:
        made[1].leave()
        found = outcomes(made[:1] + made[2:], Ring.barrier)
    assert [type(problem) for problem in found] == [PeerLeft] * (size - 1)
    assert [problem.rank for problem in found] == [1] * (size - 1)


def test_a_failed_ring_stays_failed() -> None:
    with rings(2) as made:
        made[0].abort("a test")
        for call in (Ring.barrier, lambda ring: ring.all_gather(b"")):
            for problem in outcomes(made, call):
                assert isinstance(problem, RingError)
                assert "aborted by rank 0: a test" in str(problem)
        assert "a test" in str(made[1].error)


def test_only_one_thread_may_call() -> None:
    with rings(2) as made:
        waiting = threading.Thread(target=outcomes, args=([made[0]], Ring.barrier))
        waiting.start()
        while not made[0]._calling.locked():  # noqa: SLF001
            time.sleep(0.001)
        with pytest.raises(RuntimeError, match="another thread is within an operation"):
            made[0].barrier()
        made[1].barrier()
        waiting.join()
