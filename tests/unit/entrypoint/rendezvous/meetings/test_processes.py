"""Workers that are killed, frozen or started again before the gate opens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from entrypoint.rendezvous.facts import host_list
from entrypoint.rendezvous.outcome import Fewer


def test_a_member_that_was_killed_is_waited_for_and_replaced(cluster):
    three = cluster(3)
    chief, member = three.start(0), three.start(1)
    member.wait_for("waiting for 1 of 3 workers")
    member.kill()
    chief.wait_for("waiting for 2 of 3 workers", "worker-1", "refused")
    again, last = three.start(1), three.start(2)
    assert [process.end() for process in (chief, again, last)] == [None] * 3


def test_a_chief_that_was_killed_is_dialled_again(cluster):
    three = cluster(3)
    chief, member = three.start(0), three.start(1)
    member.wait_for("waiting for 1 of 3 workers")
    chief.kill()
    member.wait_for("waiting for worker-0", "(the chief)", "refused")
    again, last = three.start(0), three.start(2)
    assert [process.end() for process in (again, member, last)] == [None] * 3


@pytest.mark.parametrize("last_comes", ["before it is noticed", "after it is noticed"])
def test_a_frozen_member_holds_the_release_until_it_is_back(cluster, last_comes):
    three = cluster(3)
    chief, member = three.start(0), three.start(1)
    member.wait_for("waiting for 1 of 3 workers")
    member.freeze()
    last = three.start(2) if last_comes.startswith("before") else None
    chief.wait_for("worker-1", "checked in, but has been silent for")
    last = last or three.start(2)
    last.wait_for("waiting for 1 of 3 workers", "worker-1")
    member.thaw()
    assert [process.end() for process in (chief, member, last)] == [None] * 3


def test_a_frozen_chief_is_missed_and_found_again(cluster):
    three = cluster(3)
    chief, member = three.start(0), three.start(1)
    member.wait_for("waiting for 1 of 3 workers")
    chief.freeze()
    member.wait_for("waiting for worker-0", "(the chief)")
    chief.thaw()
    last = three.start(2)
    assert [process.end() for process in (chief, member, last)] == [None] * 3


def test_a_worker_takes_the_place_of_one_that_is_silent_for_good(cluster):
    """As after the loss of a machine: the old connection is open, and silent."""
    three = cluster(3)
    chief, frozen = three.start(0), three.start(1)
    frozen.wait_for("waiting for 1 of 3 workers")
    frozen.freeze()
    elsewhere = three.moved(worker_1=str(cluster(1).member(0).address))
    again = three.start(1, spec=elsewhere)
    chief.wait_for("worker-1", "checked in from 127.0.0.1, but does not answer at its advertised")
    frozen.thaw()  # and now there are two
    assert [process.end().exit_code for process in (chief, frozen)] == [78, 78]
    assert "WORKER_INDEX of worker-1 at 127.0.0." in str(again.end())


@pytest.mark.parametrize("first", ["stale", "newer"])
def test_of_two_with_one_index_the_one_that_was_in_an_older_ring_goes_alone(cluster, first):
    """As when a worker was frozen, was replaced, and has thawed."""
    three = cluster(3)
    chief = three.start(0, generation=9)
    elsewhere = three.moved(worker_1=str(cluster(1).member(0).address))
    if first == "stale":
        old = three.start(1, spec=elsewhere, generation=7)
        chief.wait_for("worker-1 at", "but does not answer at its advertised address")
        new = three.start(1, generation=9)
    else:
        new = three.start(1, generation=9)
        chief.wait_for("waiting for 1 of 3 workers", "worker-2 at")
        old = three.start(1, spec=elsewhere, generation=7)
    assert old.end().exit_code == 78
    assert "it has replaced this one" in str(old.end())
    last = three.start(2)
    assert [worker.end() for worker in (chief, new, last)] == [None] * 3


def test_one_that_was_in_no_ring_is_no_older_than_one_that_was(cluster):
    """Its index may be wrong, or it may be the other's replacement. No worker can know."""
    three = cluster(3)
    chief, one = three.start(0), three.start(1, generation=9)
    chief.wait_for("waiting for 1 of 3 workers", "worker-2 at")
    other = three.start(1, spec=three.moved(worker_1=str(cluster(1).member(0).address)))
    assert [worker.end().exit_code for worker in (chief, one, other)] == [78] * 3


FEWER = Fewer(2, 60.0)


@pytest.mark.parametrize("first", ["of the last ring", "new"])
def test_where_fewer_may_go_on_the_new_one_of_two_with_one_index_goes_alone(cluster, first):
    """As when a worker was frozen and replaced, and thaws before the other was in a ring."""
    three = cluster(3)
    chief = three.start(0, generation=9, fewer=FEWER)
    elsewhere = three.moved(worker_1=str(cluster(1).member(0).address))
    if first == "new":
        new = three.start(1, spec=elsewhere, fewer=FEWER)
        chief.wait_for("worker-1 at", "but does not answer at its advertised address")
        one = three.start(1, generation=9, fewer=FEWER)
    else:
        one = three.start(1, generation=9, fewer=FEWER)
        chief.wait_for("waiting for 1 of 3 workers", "worker-2 at")
        new = three.start(1, spec=elsewhere, fewer=FEWER)
    assert new.end().exit_code == 78
    assert "an index that no other worker has" in str(new.end())
    chief.wait_for("WARNING", "WORKER_INDEX of worker-1 at", "sent away, and the others continue")
    last = three.start(2, generation=9, fewer=FEWER)
    assert [worker.end() for worker in (chief, one, last)] == [None] * 3


def test_where_fewer_may_go_on_a_new_one_with_other_facts_goes_alone(cluster):
    three = cluster(3)
    stay = [three.start(place, generation=9, fewer=FEWER) for place in (0, 1)]
    stay[1].wait_for("waiting for 1 of 3 workers", "worker-2 at")
    wrong = three.start(2, facts=replace(three.facts, image="0.2.0"), fewer=FEWER)
    assert wrong.end().exit_code == 78
    assert "image version of worker-2" in str(wrong.end())
    stay[0].wait_for("WARNING", "image version of worker-2", "sent away, and the others continue")
    right = three.start(2, fewer=FEWER)
    assert [worker.end() for worker in (*stay, right)] == [None] * 3


@pytest.mark.parametrize("generation", [9, 0], ids=["who trained", "who waits, new as it is"])
def test_where_fewer_may_go_on_a_new_one_that_dials_a_member_has_no_say_there(cluster, generation):
    """Its list has another first worker, and it reports the contradiction to that one."""
    three = cluster(3)
    stay = [
        three.start(0, generation=9, fewer=FEWER),
        three.start(1, generation=generation, fewer=FEWER),
    ]
    stay[1].wait_for("waiting for 1 of 3 workers", "worker-2 at")
    swapped = three.moved(
        worker_0=str(three.member(1).address), worker_1=str(three.member(0).address)
    )
    facts = replace(three.facts, hosts=host_list(swapped))
    wrong = three.start(2, spec=swapped, facts=facts, fewer=FEWER)
    assert wrong.end().exit_code == 78
    right = three.start(2, fewer=FEWER)
    assert [worker.end() for worker in (*stay, right)] == [None] * 3


def test_one_of_the_last_ring_that_differs_ends_it_for_all(cluster):
    """Worker 0 alone cannot decide which of the two is right."""
    three = cluster(3)
    facts = replace(three.facts, image="0.2.0")
    all_three = [
        three.start(0, generation=9, fewer=FEWER),
        three.start(1, generation=9, fewer=FEWER),
        three.start(2, generation=9, fewer=FEWER, facts=facts),
    ]
    assert [worker.end().exit_code for worker in all_three] == [78] * 3
