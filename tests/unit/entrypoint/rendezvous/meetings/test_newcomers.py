"""MIN_WORKERS at the gate: a newcomer that disagrees ends alone, whichever worker it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from entrypoint.rendezvous.outcome import Fewer
from entrypoint.rendezvous.roles.chief import ChiefRole
from harness.timing import QUICK

FEWER = Fewer(2, 60.0)
LATE = replace(QUICK, collect_seconds=5.0)
"""For a worker that finds a contradiction, and waits until all have met it."""


def test_a_new_worker_0_with_another_image_ends_alone(cluster):
    """It accuses the workers that have trained. Another newcomer hears nothing of it."""
    four = cluster(4)
    stay = [four.start(place, generation=9, fewer=FEWER) for place in (1, 2)]
    stay.append(four.start(3, fewer=FEWER))
    facts = replace(four.facts, image="0.2.0")
    wrong = four.start(0, facts=facts, fewer=FEWER, timing=LATE)
    assert wrong.end().exit_code == 78
    assert "image version of worker-" in str(wrong.end())
    wrong.wait_for("WARNING", "only this one exits")
    for worker in stay[:2]:
        worker.wait_for("WARNING worker-0 was in no ring with this worker", "image version of")
    right = four.start(0, fewer=FEWER)
    assert [worker.end() for worker in (right, *stay)] == [None] * 4


def test_a_new_worker_with_another_index_at_the_address_of_worker_0_ends_alone(cluster):
    three = cluster(3)
    stay = [three.start(place, generation=9, fewer=FEWER) for place in (1, 2)]
    there = three.moved(worker_2=str(three.member(0).address))
    slow = replace(QUICK, collect_seconds=1.5)  # it finds itself at that address, too, and earlier
    wrong = three.start(2, spec=there, fewer=FEWER, timing=slow)
    for worker in stay:
        worker.wait_for(
            "WARNING", "WORKER_INDEX of worker-2 at", "sent away, and the others continue"
        )
    assert wrong.end().exit_code == 78
    right = three.start(0, fewer=FEWER)
    assert [worker.end() for worker in (right, *stay)] == [None] * 3


@pytest.fixture
def contradicting(monkeypatch):
    """Return a list that is filled as soon as worker 0 collects contradictions."""
    begun, contradict = [], ChiefRole._contradict  # noqa: SLF001 -- no line reports it

    async def noted(self):
        begun.append(self)
        return await contradict(self)

    monkeypatch.setattr(ChiefRole, "_contradict", noted)
    return begun


def test_a_new_worker_0_hears_those_who_trained_before_it_ends_for_another_new_one(
    cluster, contradicting
):
    """It comes first. Only workers that have trained show that it is new."""
    five = cluster(5)
    chief = five.start(0, fewer=FEWER, timing=LATE)
    wrong = five.start(3, facts=replace(five.facts, image="0.2.0"), fewer=FEWER, timing=LATE)
    five.world.run_until(lambda: bool(contradicting), "worker 0 collects")
    stay = [five.start(place, generation=9, fewer=FEWER) for place in (1, 2, 4)]
    assert wrong.end().exit_code == 78
    chief.wait_for("WARNING", "image version of worker-3 at", "sent away, and the others continue")
    right = five.start(3, fewer=FEWER)
    assert [worker.end() for worker in (chief, right, *stay)] == [None] * 5


def test_a_new_worker_0_takes_the_one_who_trained_of_two_with_one_index(cluster):
    three = cluster(3)
    chief = three.start(0, fewer=FEWER)
    elsewhere = three.moved(worker_1=str(cluster(1).member(0).address))
    stray = three.start(1, spec=elsewhere, fewer=FEWER)
    chief.wait_for("worker-1 at", "but does not answer at its advertised address")
    stay = [three.start(place, generation=9, fewer=FEWER) for place in (1, 2)]
    assert stray.end().exit_code == 78
    assert [worker.end() for worker in (chief, *stay)] == [None] * 3


@pytest.mark.parametrize("first", ["the wrong one", "the right one"])
def test_of_two_new_ones_with_one_index_the_one_at_the_address_is_right(cluster, first):
    three = cluster(3)
    chief = three.start(0, generation=9, fewer=FEWER)
    elsewhere = three.moved(worker_1=str(cluster(1).member(0).address))
    if first == "the wrong one":
        wrong = three.start(1, spec=elsewhere, fewer=FEWER)
        chief.wait_for("worker-1 at", "but does not answer at its advertised address")
        right = three.start(1, fewer=FEWER)
    else:
        right = three.start(1, fewer=FEWER)
        chief.wait_for("waiting for 1 of 3 workers", "worker-2 at")
        wrong = three.start(1, spec=elsewhere, fewer=FEWER)
    assert wrong.end().exit_code == 78
    assert "an index that no other worker has" in str(wrong.end())
    last = three.start(2, generation=9, fewer=FEWER)
    assert [worker.end() for worker in (chief, right, last)] == [None] * 3


@pytest.mark.long
def test_of_two_new_ones_that_cannot_be_reached_neither_ends_anybody(cluster):
    three = cluster(3)
    chief = three.start(0, generation=9, fewer=FEWER)
    places = [three.moved(worker_1=str(one.address)) for one in cluster(2).spec.members]
    both = [three.start(1, spec=place, fewer=FEWER, timeout_seconds=4.0) for place in places]
    last = three.start(2, generation=9, fewer=FEWER)
    last.wait_for("waiting for 1 of 3 workers", "worker-1 at")
    assert [worker.end().exit_code for worker in both] == [75, 75]
    right = three.start(1, fewer=FEWER)
    assert [worker.end() for worker in (chief, right, last)] == [None] * 3


def test_a_new_one_that_has_a_lost_ones_address_as_well_is_not_accused(cluster):
    three = cluster(3)
    chief = three.start(0, generation=9, fewer=FEWER)
    waits = three.start(1, fewer=FEWER)
    waits.wait_for("waiting for 1 of 3 workers", "worker-2 at")
    forwards = three.world.space.forwards
    forwards[three.member(2).address] = three.member(1).address
    chief.wait_for("worker-2 at", "worker-1 answers there, and at its own address, too")
    forwards.clear()
    last = three.start(2, generation=9, fewer=FEWER)
    assert [worker.end() for worker in (chief, waits, last)] == [None] * 3
