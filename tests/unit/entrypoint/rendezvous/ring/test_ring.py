"""Commands that ask for their neighbours: who is connected with whom, what is said meanwhile."""

from __future__ import annotations

import errno
import os
import socket
import time

import pytest

from cluster_trainer.collectives import neighbours
from cluster_trainer.collectives.neighbours import NeighboursError
from entrypoint.rendezvous.ring import serve
from entrypoint.rendezvous.transport.messages import LARGEST_NUMBER
from entrypoint.supervision.peers.shared import Generations
from harness.neighbours import check_circle

LONG_SECONDS = 20.0


def errors(asked) -> list[NeighboursError]:
    """Return what those who asked were told."""
    found = [one.exception(LONG_SECONDS) for one in asked]
    assert all(isinstance(one, NeighboursError) for one in found), found
    return found


@pytest.mark.parametrize("token", ["a secret that they share", None], ids=["token", "no token"])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_who_ask_are_connected_in_the_order_of_their_ranks(cluster, worker, rings, size, token):
    many = cluster(size)
    found = rings([worker(many, rank, token=token).ask() for rank in range(size)])
    assert [(ring.rank, ring.size) for ring in found] == [(rank, size) for rank in range(size)]
    assert len({ring.generation for ring in found}) == 1
    check_circle(found)
    for ring in found:
        assert ring.left.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not os.get_inheritable(ring.left.fileno())


def test_a_long_wait_is_known_to_be_none_for_a_dead_entrypoint(cluster, worker, rings, monkeypatch):
    monkeypatch.setattr(serve, "SIGN_SECONDS", 0.2)
    monkeypatch.setattr(neighbours, "SILENT_SECONDS", 1)
    two = cluster(2)
    first = worker(two, 0).ask()
    time.sleep(2)
    check_circle(rings([first, worker(two, 1).ask()]))


def test_a_chief_task_is_the_first(cluster, worker, rings):
    three = cluster(3, with_chief=True)
    check_circle(rings([worker(three, rank).ask() for rank in range(3)]))


def test_nothing_listens_before_the_ask_and_after_the_answer(cluster, worker, rings):
    two = cluster(2)
    workers = [worker(two, rank) for rank in range(2)]

    def refused() -> list[int]:
        results = []
        for member in two.spec.members:
            with socket.socket() as stranger:
                results.append(stranger.connect_ex((member.address.host, member.address.port)))
        return results

    assert refused() == [errno.ECONNREFUSED] * 2
    rings([one.ask() for one in workers])
    assert refused() == [errno.ECONNREFUSED] * 2


def test_asking_again_makes_a_newer_ring(cluster, worker, rings):
    three = cluster(3)
    workers = [worker(three, rank) for rank in range(3)]
    generations = []
    for _ in range(4):
        found = rings([one.ask() for one in workers])
        check_circle(found)
        generations.append(found[0].generation)
        assert {ring.generation for ring in found} == {generations[-1]}
    assert generations == sorted(set(generations))


def test_a_ring_of_a_later_run_is_newer_whatever_the_clock_says(cluster, worker, rings):
    two = cluster(2)
    kept = Generations()
    kept.note(900_000_000, 3)  # one of them remembers it, whose command has been started again
    found = rings([worker(two, 0).ask(), worker(two, 1, seen=kept).ask()])
    assert [ring.generation for ring in found] == [900_000_001] * 2
    assert kept.newest == 900_000_001


def test_a_clock_that_runs_far_ahead_ends_no_rings(cluster, worker, rings, monkeypatch):
    two = cluster(2)
    workers = [worker(two, rank, seen=Generations()) for rank in range(2)]
    monkeypatch.setattr(time, "time", lambda: 4e9)  # in the year 2096
    ahead = [rings([one.ask() for one in workers])[0].generation for _ in range(2)]
    monkeypatch.undo()
    after = rings([one.ask() for one in workers])[0].generation
    assert ahead[0] < ahead[1] < after < LARGEST_NUMBER


def test_one_that_asks_again_waits_for_those_that_have_not_noticed_yet(cluster, worker, rings):
    three = cluster(3)
    workers = [worker(three, rank) for rank in range(3)]
    rings([one.ask() for one in workers])
    first = workers[1].ask()
    workers[1].wait_for("worker-2 at", "its command has not asked for its neighbours yet")
    check_circle(rings([workers[0].ask(), first, workers[2].ask()]))


@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_late_worker_is_awaited_and_named(cluster, worker, rings, late):
    three = cluster(3)
    workers = [worker(three, rank) for rank in range(3)]
    asked = {rank: workers[rank].ask() for rank in range(3) if rank != late}
    name = f"worker-{late} at {three.member(late).address}"
    # The one to its left dials it, the one to its right waits to be dialled.
    workers[late - 1].wait_for(name, "has not asked for its neighbours yet")
    workers[(late + 1) % 3].wait_for(name)
    asked[late] = workers[late].ask()
    check_circle(rings([asked[rank] for rank in range(3)]))


@pytest.mark.parametrize("size", [2, 4])
def test_one_that_has_come_is_dialled_at_once(cluster, worker, rings, size):
    """Not when it is time to try again: those to its right have told of it."""
    many = cluster(size)
    workers = [worker(many, rank, redial_seconds=1000.0) for rank in range(size)]
    asked = {}
    for rank in (0, *reversed(range(2, size))):  # each dials one that listens, but for the first
        asked[rank] = workers[rank].ask()
        workers[rank].wait_for("waiting for")
    asked[1] = workers[1].ask()
    check_circle(rings([asked[rank] for rank in range(size)]))


def test_all_are_told_who_is_missing_however_far_away(cluster, worker):
    five = cluster(5)
    workers = [worker(five, rank, timeout_seconds=4.0) for rank in (0, 1, 3, 4)]
    asked = [one.ask() for one in workers]
    for one in workers:  # who gives up last misses those who did before, too
        one.wait_for(f"worker-2 at {five.member(2).address}")
    for error in errors(asked):
        assert error.code == 75
        assert "gave up after 4 s" in str(error)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"token": "another secret, as long"}, "uses another CLUSTER_TOKEN, or none"),
        ({"token": None}, "uses another CLUSTER_TOKEN, or none"),
        ({"meeting": "another"}, "is not from the same meeting at the gate"),
        ({"facts": {"image": "0.2.0"}}, "has another image version"),
        ({"facts": {"settings": {"TRAINER_SEED": "1"}}}, "has another TRAINER_EPOCHS"),
        ({"facts": {"hosts": ("a:1",)}}, "has another host list"),
    ],
)
def test_one_that_does_not_agree_gets_no_place(cluster, worker, options, says):
    two = cluster(2)
    asked = [
        worker(two, 0, timeout_seconds=1).ask(),
        worker(two, 1, timeout_seconds=1, **options).ask(),
    ]
    for error in errors(asked):
        assert says in str(error)


def test_a_neighbour_that_is_at_the_gate_again_is_not_awaited(cluster, worker):
    three = cluster(3)
    three.start(2, timeout_seconds=2)  # the gate
    begin = time.monotonic()
    (error,) = errors([worker(three, 1).ask()])
    assert time.monotonic() - begin < 2
    assert "worker-2 at" in str(error)
    assert "is at the gate: its command has ended" in str(error)
    assert error.code == 75


def test_the_gate_says_what_a_worker_is_at_that_looks_for_its_neighbours(cluster, worker):
    three = cluster(3)
    worker(three, 1).ask()
    chief = three.start(0, timeout_seconds=2)
    chief.wait_for("worker-1", "has not come to the gate: its command runs")


def test_a_command_that_ends_leaves_no_open_port(cluster, worker):
    two = cluster(2)
    one = worker(two, 0)
    asked = one.ask()
    one.wait_for("worker-1")
    one.end()
    assert errors([asked])
    address = two.member(0).address
    with socket.socket() as stranger:
        assert stranger.connect_ex((address.host, address.port)) == errno.ECONNREFUSED


def test_whoever_asks_anew_gets_the_newer_answer(cluster, worker, rings):
    two = cluster(2)
    workers = [worker(two, rank) for rank in range(2)]
    workers[0].commands.send(b'{"ask": "ring", "number": "given up"}')
    workers[0].wait_for("worker-1")
    check_circle(rings([one.ask() for one in workers]))


@pytest.mark.parametrize("anew", [0, 1, 2])
def test_one_that_asks_anew_joins_those_that_wait(cluster, worker, rings, anew):
    four = cluster(4)
    workers = [worker(four, rank) for rank in range(4)]
    asked = {rank: workers[rank].ask() for rank in range(3) if rank != anew}
    workers[anew].commands.send(b'{"ask": "ring", "number": "given up"}')
    # By then a round has gone from 0 to 2, as 2 alone sees that 3 does not listen.
    for one in workers[:3]:
        one.wait_for("worker-3 at", "its command has not asked for its neighbours yet")
    asked[anew] = workers[anew].ask()
    workers[anew].wait_for("worker-3 at")
    asked[3] = workers[3].ask()
    check_circle(rings([asked[rank] for rank in range(4)]))


@pytest.mark.parametrize("ask", [b"{}", b"ring", b"\xff", b"[]", b'{"ask": "ring", "number": 1}'])
def test_another_ask_is_refused(cluster, worker, ask):
    one = worker(cluster(2), 0)
    one.commands.send(ask)
    one.commands.settimeout(LONG_SECONDS)
    answer = one.commands.recv(4096)
    assert b'"code": 78' in answer
    assert b"asked for something that it does not know" in answer


def test_a_port_that_is_taken_is_said_so(cluster, worker):
    two = cluster(2)
    address = two.member(0).address
    with socket.create_server((address.host, address.port)):
        (error,) = errors([worker(two, 0).ask()])
    assert f"port {address.port} of worker-0 is taken" in str(error)
    assert error.code == 75
