"""Commands that ask again: they meet the others at the gate, and whoever replaces a lost one."""

from __future__ import annotations

import errno
import socket

import pytest

from harness.neighbours import check_circle

LONG_SECONDS = 60.0


def close(rings) -> None:
    """Close the connections, as commands do that have seen their ring break."""
    for ring in rings:
        ring.left.close()
        ring.right.close()


def is_closed(address) -> bool:
    with socket.socket() as stranger:
        return stranger.connect_ex((address.host, address.port)) == errno.ECONNREFUSED


@pytest.mark.parametrize("lost", [(0,), (1,), (2,), (1, 2), (0, 1)], ids=str)
def test_those_that_stay_are_another_ring_with_those_that_replace_the_lost(
    cluster, worker, rings, lost
):
    three = cluster(3)
    workers = {rank: worker(three, rank, gate=LONG_SECONDS) for rank in range(3)}
    first = rings([workers[rank].ask() for rank in range(3)])
    for rank in lost:
        workers[rank].end()
    close(first)
    again = {rank: one.ask() for rank, one in workers.items() if rank not in lost}
    for rank in lost:
        workers[rank] = worker(three, rank, meeting=None, gate=LONG_SECONDS)
        workers[rank].has_met.wait(LONG_SECONDS if rank == lost[-1] else 0)
    assert all(not asked.done() for asked in again.values())  # for those have not asked yet
    again |= {rank: workers[rank].ask() for rank in lost}
    found = rings([again[rank] for rank in range(3)])
    check_circle(found)
    (generation,) = {ring.generation for ring in found}
    assert generation > first[0].generation
    begins = f"INFO the ring of generation {first[0].generation} has ended"
    for rank, one in workers.items():
        assert any(line.startswith(begins) for line in one.lines) == (rank not in lost)
        level = "INFO" if one is workers[0] else "DEBUG"
        assert f"{level} 3 workers are a ring, generation {generation}" in one.lines


def test_where_nobody_was_lost_all_that_ask_again_meet(cluster, worker, rings):
    three = cluster(3)
    workers = [worker(three, rank, gate=LONG_SECONDS) for rank in range(3)]
    generations = []
    for _ in range(3):
        found = rings([one.ask() for one in workers])
        check_circle(found)
        close(found)
        generations.append({ring.generation for ring in found})
    assert len(set.union(*generations)) == 3
    for one in workers:
        assert len([line for line in one.lines if "3 workers are here and agree" in line]) == 2


def test_who_waits_is_shown_to_wait_and_says_for_whom(cluster, worker, rings):
    two = cluster(2)
    workers = [worker(two, rank, gate=LONG_SECONDS) for rank in range(2)]
    first = workers[0].ask()
    workers[0].wait_for("worker-1 at", "its command has not asked for its neighbours yet")
    assert not workers[0].is_waiting  # as before: the command has never trained
    close(rings([first, workers[1].ask()]))
    workers[1].end()
    asked = workers[0].ask()
    workers[0].wait_for("waiting for 1 of 2 workers", "worker-1 at")
    assert workers[0].is_waiting
    again = worker(two, 1, meeting=None, gate=LONG_SECONDS)
    workers[0].wait_for("2 workers are here and agree")
    workers[0].wait_for("for a ring of 2 workers: worker-1 at")
    assert workers[0].is_waiting
    rings([asked, again.ask()])
    assert not workers[0].is_waiting


@pytest.mark.parametrize("asks_again", [True, False], ids=["after a ring", "before any ring"])
def test_one_that_is_lost_once_more_before_the_ring_is_closed_is_met_once_more(
    cluster, worker, rings, asks_again
):
    three = cluster(3)
    workers = [worker(three, rank, gate=LONG_SECONDS) for rank in range(3)]
    if asks_again:
        close(rings([one.ask() for one in workers]))
    asked = [workers[rank].ask() for rank in (0, 1)]
    for _ in range(2):
        workers[2].end()
        workers[2] = worker(three, 2, meeting=None, gate=LONG_SECONDS)
        assert workers[2].has_met.wait(LONG_SECONDS)
    workers[1].wait_for("WARNING worker-2 at", "is at the gate", "going there, too")
    check_circle(rings([*asked, workers[2].ask()]))


def test_one_that_is_lost_again_and_again_is_given_up(cluster, worker):
    two = cluster(2)
    asked = worker(two, 0, gate=LONG_SECONDS, most_losses=2).ask()
    for _ in range(2):
        lost = worker(two, 1, meeting=None, gate=LONG_SECONDS)
        assert lost.has_met.wait(LONG_SECONDS)
        lost.end()
    two.start(1, token="a secret that they share", timeout_seconds=3)
    error = asked.exception(LONG_SECONDS)
    assert error.code == 75
    assert "gave up after 3 meetings at the gate without a ring" in str(error)
    assert "worker-1 at" in str(error)


def test_whoever_does_not_come_to_the_gate_is_named(cluster, worker, rings):
    three = cluster(3)
    workers = [worker(three, rank, gate=3) for rank in range(3)]
    close(rings([one.ask() for one in workers]))
    workers[1].end()
    for asked in [workers[rank].ask() for rank in (0, 2)]:
        error = asked.exception(LONG_SECONDS)
        assert error.code == 75
        assert "gave up after 3 s" in str(error)
        assert f"worker-1 at {three.member(1).address}: refused" in str(error)


def test_a_replacement_that_does_not_agree_is_refused_with_the_reason(cluster, worker, rings):
    two = cluster(2)
    workers = [worker(two, rank, gate=LONG_SECONDS, token=None) for rank in range(2)]
    close(rings([one.ask() for one in workers]))
    asked = workers[0].ask()
    workers[1].end()
    other = two.start(1, facts=two.facts.__class__(**vars(two.facts) | {"image": "0.2.0"}))
    error = asked.exception(LONG_SECONDS)
    assert error.code == 78
    assert "image version of worker-1" in str(error)
    assert "image version of worker-1" in str(other.end())


@pytest.mark.parametrize(("rank", "says"), [(0, ["1 of 2 workers"]), (1, ["(the chief)"])])
def test_a_command_that_ends_while_it_waits_at_the_gate_leaves_nothing(
    cluster, worker, rings, rank, says
):
    two = cluster(2)
    workers = [worker(two, rank, gate=LONG_SECONDS) for rank in range(2)]
    close(rings([one.ask() for one in workers]))
    asked = workers[rank].ask()
    workers[rank].wait_for("waiting for", *says, "refused")
    workers[rank].end()  # which fails where the thread does not end
    assert "has ended" in str(asked.exception(LONG_SECONDS))
    assert not workers[rank].is_waiting
    assert is_closed(two.member(rank).address)


@pytest.mark.parametrize("anew", [0, 1], ids=["the chief", "a member"])
def test_who_asks_anew_at_the_gate_gets_the_newer_answer(cluster, worker, rings, anew):
    three = cluster(3)
    workers = [worker(three, rank, gate=LONG_SECONDS) for rank in range(3)]
    close(rings([one.ask() for one in workers]))
    workers[anew].commands.send(b'{"ask": "ring", "number": "given up"}')
    asked = {1 - anew: workers[1 - anew].ask()}
    workers[1].wait_for("waiting for 1 of 3 workers", "worker-2 at")
    asked[anew] = workers[anew].ask()
    asked[2] = workers[2].ask()
    check_circle(rings([asked[rank] for rank in range(3)]))


def test_without_a_gate_those_that_ask_again_look_for_each_other_at_once(cluster, worker, rings):
    two = cluster(2)
    workers = [worker(two, rank) for rank in range(2)]
    first, second = (rings([one.ask() for one in workers]) for _ in range(2))
    assert second[0].generation > first[0].generation
    assert not any("gate" in line for one in workers for line in one.lines)
