"""MIN_WORKERS: those who stay go on without the lost, which are taken in when they are back."""

from __future__ import annotations

import contextlib
import json
import socket
import time

import pytest

from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.ring import left_out
from entrypoint.rendezvous.transport.messages import CHECK_IN, encode
from entrypoint.rendezvous.transport.signing import REFUSAL, Signer, greeting
from harness.neighbours import check_circle
from harness.waiting import wait_until

LONG_SECONDS = 60.0
NONCE = "0" * 32


@pytest.fixture
def begin(cluster, worker, rings):
    """Start workers of which at least so many go on; return the cluster and them, in a ring."""

    def start(count: int, least: int, **options: object):
        spec = cluster(count)
        given = {"gate": LONG_SECONDS, "least": least, **options}
        workers = [worker(spec, rank, **given) for rank in range(count)]
        return spec, workers, rings([one.ask() for one in workers]), given

    return start


def lose(found, workers, *lost: int) -> None:
    """End some workers; the ring breaks for all."""
    for place in lost:
        workers[place].end()
    for ring in found:
        ring.left.close()
        ring.right.close()


def again(worker, spec, place, given):
    """Start a worker that was lost, which passes the gate while the others train; return it."""
    one = worker(spec, place, meeting=None, **given)
    assert one.has_met.wait(LONG_SECONDS)
    return one


def news_of(worker) -> dict[str, object]:
    """Return what the command is told without having asked."""
    worker.commands.settimeout(LONG_SECONDS)
    found = json.loads(worker.commands.recv(4096))
    worker.commands.settimeout(None)
    return found


@pytest.mark.parametrize(
    ("count", "lost"), [(3, (1,)), (3, (2,)), (5, (1, 3)), (5, (4, 3))], ids=str
)
def test_the_others_go_on_without_the_lost(begin, rings, count, lost):
    _, workers, first, _ = begin(count, count // 2 + 1)
    lose(first, workers, *lost)
    left = [place for place in range(count) if place not in lost]
    found = rings([workers[place].ask() for place in left])
    check_circle(found)
    assert [ring.members for ring in found] == [tuple(left)] * len(left)
    assert found[0].generation > first[0].generation
    missing = ", ".join(f"worker-{place}" for place in sorted(lost))
    for place in left:
        workers[place].wait_for(f"{len(left)} of {count} workers are here", missing, "MIN_WORKERS")


def test_the_lost_are_waited_for_first(begin, rings):
    _, workers, first, _ = begin(3, 2, after_seconds=1.5)
    lose(first, workers, 2)
    began = time.monotonic()
    rings([workers[place].ask() for place in (0, 1)])
    assert time.monotonic() - began >= 1.5


def test_where_all_are_back_at_once_nobody_waits_for_long(begin, rings):
    _, workers, first, _ = begin(3, 2, after_seconds=LONG_SECONDS)
    lose(first, workers)
    began = time.monotonic()
    found = rings([one.ask() for one in workers])
    assert time.monotonic() - began < LONG_SECONDS / 2
    assert found[0].members == (0, 1, 2)


@pytest.mark.parametrize("lost", [(0,), (1, 2)], ids=str)
def test_without_worker_0_or_without_enough_they_wait(begin, worker, rings, lost):
    spec, workers, first, given = begin(3, 2)
    lose(first, workers, *lost)
    asked = {place: workers[place].ask() for place in range(3) if place not in lost}
    some = workers[next(iter(asked))]
    some.wait_for("worker-0 at" if lost == (0,) else "waiting for 2 of 3 workers")
    assert not any(one.done() for one in asked.values())
    for place in lost:
        workers[place] = worker(spec, place, meeting=None, **given)
    for place in lost:
        assert workers[place].has_met.wait(LONG_SECONDS)
        asked[place] = workers[place].ask()
    found = rings([asked[place] for place in range(3)])
    check_circle(found)
    assert found[0].members == (0, 1, 2)


def test_who_was_lost_goes_ahead_and_is_taken_in_when_its_command_asks(begin, worker, rings):
    spec, workers, first, given = begin(3, 2)
    lose(first, workers, 1)
    short = rings([workers[place].ask() for place in (0, 2)])
    workers[1] = back = again(worker, spec, 1, given)
    back.wait_for("worker-0 and others train already: the command starts")
    asked = back.ask()
    assert news_of(workers[0]) == {"waiting": ["worker-1"]}
    back.wait_for("2 of 3 workers train", "this one waits to be taken in, at the end of a call")
    assert not asked.done()
    lose(short, workers)  # as the commands do at the end of a call
    found = rings([workers[0].ask(), asked, workers[2].ask()])
    check_circle(found)
    assert [ring.members for ring in found] == [(0, 1, 2)] * 3
    assert found[0].generation > short[0].generation


def test_who_waits_to_be_taken_in_may_wait_for_ever_and_says_so_ever_more_seldom(
    begin, worker, rings
):
    spec, workers, first, given = begin(3, 2)
    lose(first, workers, 1)
    rings([workers[place].ask() for place in (0, 2)])
    workers[1] = back = again(worker, spec, 1, given)
    back.ask()
    wait_until(lambda: len(back.prolonged) > 9, LONG_SECONDS, "waits", lambda: str(back.lines))
    assert set(back.prolonged) == {back.prolonged[0]}
    said = [line for line in back.lines if back.prolonged[0] in line]
    assert 2 <= len(said) <= 6


def test_who_comes_back_and_cannot_be_dialled_is_told_so(begin, worker, rings, cluster):
    spec, workers, first, given = begin(3, 2)
    lose(first, workers, 1)
    rings([workers[place].ask() for place in (0, 2)])
    elsewhere = spec.moved(worker_1=str(cluster(1).member(0).address))
    back = worker(spec, 1, meeting=None, spec=elsewhere, **given)
    back.wait_for("2 of 3 workers train", "but does not answer at its advertised address")
    why = ("cannot be taken in: worker-1 at", "does not answer at its advertised address")
    workers[0].wait_for("WARNING", *why)
    assert not back.has_met.is_set()


def test_who_comes_back_to_its_address_takes_the_place_of_one_who_is_not_there(
    begin, worker, rings, cluster
):
    spec, workers, first, given = begin(3, 2)
    lose(first, workers, 1)
    rings([workers[place].ask() for place in (0, 2)])
    elsewhere = spec.moved(worker_1=str(cluster(1).member(0).address))
    wrong = worker(spec, 1, meeting=None, spec=elsewhere, **given)
    wrong.wait_for("but does not answer at its advertised address")
    workers[1] = again(worker, spec, 1, given)
    assert "an index that no other worker has" in wrong.failure()
    workers[1].ask()
    assert news_of(workers[0]) == {"waiting": ["worker-1"]}


def test_one_whose_ring_broke_before_worker_0_has_noticed_is_told_so(begin, rings):
    _, workers, first, _ = begin(3, 2)
    lose(first, workers, 1)
    short = rings([workers[place].ask() for place in (0, 2)])
    lose(short[1:], workers)
    asked = workers[2].ask()
    workers[2].wait_for("worker-2 did, but its ring has broken: worker-0 has to notice, too")
    lose(short[:1], workers)
    check_circle(rings([workers[0].ask(), asked]))


def test_two_that_come_back_are_told_of_one_by_one(begin, worker, rings):
    spec, workers, first, given = begin(5, 3)
    lose(first, workers, 3, 4)
    rings([workers[place].ask() for place in (0, 1, 2)])
    for place in (4, 3):
        workers[place] = again(worker, spec, place, given)
        workers[place].ask()
        news = news_of(workers[0])
    assert sorted(news["waiting"]) == ["worker-3", "worker-4"]


def test_half_of_those_who_trained_last_wait_for_the_others(begin, worker, rings):
    """Two of three train. One is lost: it may be frozen, or go on with another in place of 0."""
    spec, workers, first, given = begin(3, 2)
    lose(first, workers, 1)
    short = rings([workers[place].ask() for place in (0, 2)])
    workers[1] = again(worker, spec, 1, given)
    asked = [workers[1].ask()]
    assert news_of(workers[0]) == {"waiting": ["worker-1"]}
    lose(short, workers, 2)
    asked.append(workers[0].ask())
    why = "2 of 3 workers are here, but only 1 of the 2 that trained last"
    workers[0].wait_for("waiting for 1 of 3 workers", "worker-2 at", why)
    workers[1].wait_for(why)
    assert not any(one.done() for one in asked)
    workers[2] = again(worker, spec, 2, given)
    found = rings([*asked, workers[2].ask()])
    check_circle([found[1], found[0], found[2]])


def test_worker_0_in_another_process_leads_most_of_those_who_trained_last(begin, worker, rings):
    """A new worker 0 knows of no ring; those who have been in one say so."""
    spec, workers, first, given = begin(5, 3)
    lose(first, workers, 0, 4)
    asked = [workers[place].ask() for place in (1, 2, 3)]
    workers[0] = again(worker, spec, 0, given)
    found = rings([workers[0].ask(), *asked])
    check_circle(found)
    assert found[0].members == (0, 1, 2, 3)


@pytest.mark.parametrize(("of_worker_0", "of_the_other"), [(0, 5), (5, 0)])
def test_one_of_those_who_trained_last_waits_whoever_replaced_the_others(
    cluster, worker, of_worker_0, of_the_other
):
    """The other two may go on elsewhere: with a second worker 0, or after this one was frozen."""
    spec = cluster(3)
    given = {"gate": LONG_SECONDS, "least": 2, "meeting": None, "ring_size": 3}
    two = [
        worker(spec, 0, generation=of_worker_0, **given),
        worker(spec, 2, generation=of_the_other, **given),
    ]
    two[0].wait_for("2 of 3 workers are here, but only 1 of the 3 that trained last")
    assert not any(one.has_met.is_set() for one in two)


def test_a_worker_0_that_was_replaced_ends_alone(cluster, worker):
    """It was frozen; the others went on with another, which is gone for the moment."""
    spec = cluster(3)
    given = {"gate": LONG_SECONDS, "least": 2, "meeting": None}
    old = worker(spec, 0, generation=5, **given)
    other = worker(spec, 1, generation=6, **given)
    assert "WORKER_INDEX of worker-0 at" in old.failure()
    assert "worker-1 at" in old.failure()
    assert "was in a later ring, with another worker-0" in old.failure()
    new = [worker(spec, place, **given) for place in (0, 2)]
    assert all(one.has_met.wait(LONG_SECONDS) for one in (*new, other))


def test_a_first_start_waits_for_all(cluster, worker):
    spec = cluster(3)
    given = {"gate": LONG_SECONDS, "least": 2, "meeting": None}
    two = [worker(spec, place, **given) for place in (0, 1)]
    two[0].wait_for("waiting for 1 of 3 workers", "worker-2 at")
    assert not any(one.has_met.is_set() for one in two)
    last = worker(spec, 2, **given)
    assert all(one.has_met.wait(LONG_SECONDS) for one in (*two, last))


def test_who_comes_with_other_settings_is_told_so_and_the_others_go_on(begin, worker, rings):
    spec, workers, first, given = begin(3, 2)
    lose(first, workers, 1)
    short = rings([workers[place].ask() for place in (0, 2)])
    wrong = worker(spec, 1, meeting=None, facts={"image": "0.2.0"}, **given)
    assert "image version of worker-1 at" in wrong.failure()
    assert not wrong.has_met.is_set()
    workers[0].wait_for("WARNING", "image version of worker-1 at", "It is sent away")
    workers[1] = again(worker, spec, 1, given)
    check_circle(short)


def test_who_waits_properly_hears_nothing_of_anothers_fault(begin, worker, rings):
    spec, workers, first, given = begin(5, 3)
    lose(first, workers, 3, 4)
    short = rings([workers[place].ask() for place in (0, 1, 2)])
    workers[3] = again(worker, spec, 3, given)
    asked = workers[3].ask()
    assert news_of(workers[0]) == {"waiting": ["worker-3"]}
    wrong = worker(spec, 4, meeting=None, facts={"image": "0.2.0"}, **given)
    assert "image version of worker-4 at" in wrong.failure()
    assert not asked.done()
    lose(short, workers)
    found = rings([*(workers[place].ask() for place in (0, 1, 2)), asked])
    assert found[0].members == (0, 1, 2, 3)


def test_who_waits_and_is_lost_is_no_longer_waited_for(begin, worker, rings):
    spec, workers, first, given = begin(3, 2)
    lose(first, workers, 1)
    short = rings([workers[place].ask() for place in (0, 2)])
    workers[1] = again(worker, spec, 1, given)
    workers[1].ask()
    assert news_of(workers[0]) == {"waiting": ["worker-1"]}
    workers[1].end()
    assert news_of(workers[0]) == {"waiting": []}
    lose(short, workers)
    found = rings([workers[place].ask() for place in (0, 2)])
    assert found[0].members == (0, 2)


@pytest.mark.parametrize("is_told_of", [True, False])
def test_who_is_known_to_be_missing_is_not_waited_for_again(begin, worker, rings, is_told_of):
    """One comes back and is lost while the others save; nobody of the ring is lost."""
    spec, workers, first, given = begin(3, 2, after_seconds=LONG_SECONDS / 2)
    lose(first, workers, 1)
    workers[1] = worker(spec, 1, meeting=None, **given)  # it only starts: nobody waits for it
    short = rings([workers[place].ask() for place in (0, 2)])
    assert workers[1].has_met.wait(LONG_SECONDS)
    if is_told_of:
        workers[1].ask()
        assert news_of(workers[0]) == {"waiting": ["worker-1"]}
    workers[1].end()
    if is_told_of:
        assert news_of(workers[0]) == {"waiting": []}
    lose(short, workers)
    began = time.monotonic()
    found = rings([workers[place].ask() for place in (0, 2)])
    assert time.monotonic() - began < LONG_SECONDS / 2
    assert found[0].members == (0, 2)


def test_one_that_only_starts_holds_nobody_up(begin, worker, rings):
    spec, workers, first, given = begin(3, 2, after_seconds=LONG_SECONDS / 2)
    lose(first, workers, 1)
    workers[1] = worker(spec, 1, meeting=None, **given)
    began = time.monotonic()
    found = rings([workers[place].ask() for place in (0, 2)])
    assert time.monotonic() - began < LONG_SECONDS / 2
    assert found[0].members == (0, 2)
    assert workers[1].has_met.wait(LONG_SECONDS)


def test_one_that_is_to_be_taken_in_and_starts_anew_holds_nobody_up(begin, worker, rings):
    spec, workers, first, given = begin(3, 2, after_seconds=LONG_SECONDS / 2)
    lose(first, workers, 1)
    workers[1] = worker(spec, 1, meeting=None, **given)
    short = rings([workers[place].ask() for place in (0, 2)])
    assert workers[1].has_met.wait(LONG_SECONDS)
    workers[1].ask()
    assert news_of(workers[0]) == {"waiting": ["worker-1"]}
    lose(short, workers, 1)
    began = time.monotonic()
    asked = [workers[place].ask() for place in (0, 2)]
    workers[1] = worker(spec, 1, meeting=None, **given)
    assert rings(asked)[0].members == (0, 2)
    assert time.monotonic() - began < LONG_SECONDS / 2


@pytest.mark.long
def test_one_that_is_lost_between_gate_and_ring_is_gone_on_without(begin, worker, rings):
    spec, workers, first, given = begin(3, 2, after_seconds=10.0)
    lose(first, workers, 2)
    # It passes the gate as one whose command asks, and is never in the ring.
    gone = worker(spec, 2, meeting=None, asks=True, generation=first[0].generation, **given)
    asked = [workers[place].ask() for place in (0, 1)]
    assert gone.has_met.wait(LONG_SECONDS)
    gone.end()
    assert rings(asked)[0].members == (0, 1)
    workers[1].wait_for("meeting the others again")


@pytest.mark.long
def test_one_whose_neighbour_cannot_be_reached_is_left_out_for_a_while(
    begin, worker, rings, cluster, monkeypatch
):
    """It and worker 0 reach each other, and so it is at each meeting; but they are never a ring."""
    monkeypatch.setattr(left_out, "FIRST_SECONDS", 3.0)
    spec, workers, first, given = begin(3, 2, soon=2.0, most_losses=2)
    lose(first, workers, 1)
    short = rings([workers[place].ask() for place in (0, 2)])
    cut_off = spec.moved(worker_2=str(cluster(1).member(0).address))
    workers[1] = back = again(worker, spec, 1, {**given, "spec": cut_off})
    asked = back.ask()
    assert news_of(workers[0]) == {"waiting": ["worker-1"]}
    lose(short, workers)
    found = rings([workers[place].ask() for place in (0, 2)])
    began = time.monotonic()
    check_circle(found)
    assert found[0].members == (0, 2)
    assert not asked.done()
    why = "is left out for 3 s: it was met twice, and there was no ring with it"
    workers[0].wait_for("WARNING worker-1", why)
    assert not any(f"WARNING worker-1 {why}" in line for line in workers[2].lines)
    workers[0].wait_for("worker-1 is back, and", why)
    back.wait_for("2 of 3 workers train; this one", why)
    assert news_of(workers[0]) == {"waiting": ["worker-1"]}
    assert time.monotonic() - began > 2.0


@pytest.mark.long
def test_of_two_that_come_back_the_one_that_reaches_its_neighbour_is_taken_in(
    begin, worker, rings, cluster, monkeypatch
):
    monkeypatch.setattr(left_out, "FIRST_SECONDS", 3.0)
    spec, workers, first, given = begin(5, 3, soon=2.0, most_losses=9)
    lose(first, workers, 1, 3)
    found = rings([workers[place].ask() for place in (0, 2, 4)])
    cut_off = spec.moved(worker_2=str(cluster(1).member(0).address))
    workers[1] = again(worker, spec, 1, {**given, "spec": cut_off})
    workers[3] = again(worker, spec, 3, given)
    workers[1].ask()
    asked = workers[3].ask()
    while len(news_of(workers[0])["waiting"]) < 2:
        pass
    for told in (["worker-1"], ["worker-3"], []):  # one by one
        lose(found, workers)
        found = rings([workers[place].ask() for place in (0, 2, 4)])
        assert 1 not in found[0].members
        if told:
            assert found[0].members == (0, 2, 4)
            assert news_of(workers[0]) == {"waiting": told}
    found.insert(2, *rings([asked]))
    check_circle(found)
    assert found[0].members == (0, 2, 3, 4)
    lose(found, workers, 4)
    found = rings([workers[place].ask() for place in (0, 2, 3)])
    assert [ring.members for ring in found] == [(0, 2, 3)] * 3


@pytest.mark.parametrize("token", [None, "another secret"])
def test_strangers_get_nothing_at_the_port_of_worker_0(begin, rings, token):
    """One that says that it is the missing worker, in all that the gate asks for but the token."""
    spec, workers, first, _ = begin(3, 2)
    lose(first, workers, 1)
    rings([workers[place].ask() for place in (0, 2)])
    card = Card.of(spec.facts, spec.member(1).task, "boot", is_chief=False, asks=True)
    with connected(spec.member(0).address) as stranger, stranger.makefile("rb") as said:
        nonce = said.readline().split()[-1].decode()
        signer = Signer(token, dialer=NONCE, listener=nonce, is_dialer=True)
        message = encode(card.message(CHECK_IN))
        stranger.sendall(greeting(NONCE) + signer.sign(message))
        assert said.read() == REFUSAL
    assert not any("worker-1 is back" in line for line in workers[0].lines)


def connected(address) -> socket.socket:
    """Connect to a worker, as soon as it listens."""
    found = []

    def is_connected() -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            found.append(socket.create_connection((address.host, address.port), LONG_SECONDS))
        return bool(found)

    wait_until(is_connected, LONG_SECONDS, f"a listener at {address}", lambda: "")
    return found[0]
