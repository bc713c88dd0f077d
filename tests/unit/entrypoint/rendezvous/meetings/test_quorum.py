"""A quorum of the processes that trained last continues without the others."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from entrypoint.rendezvous.outcome import Fewer
from entrypoint.rendezvous.roles.quorum import choose_members, held_up
from entrypoint.rendezvous.states import Expected
from entrypoint.rendezvous.terms import Terms
from harness.timing import QUICK


@dataclass
class Known:
    """The states in which the other workers are expected, by place."""

    others: Mapping[int, Expected] = field(default_factory=dict)
    only_last_ring: bool = False

    def expected(self, place: int) -> Expected:
        return self.others.get(place, Expected.COMES)


def known(awaited=(), missing=(), left_out=()) -> Known:
    return Known(
        {
            **dict.fromkeys(left_out, Expected.LEFT_OUT),
            **dict.fromkeys(missing, Expected.MISSING),
            **dict.fromkeys(awaited, Expected.AWAITED),
        }
    )


@pytest.fixture
def choose(cluster):
    """Return a function that makes a chief's terms, and the sessions of the workers that are here.

    `ring` is (generation, size), or the generation of a ring of all workers.
    """

    clusters = functools.cache(cluster)

    def make(count: int, least: int, ring: object, **others: object) -> tuple[Terms, list]:
        one = clusters(count)
        given = one.terms(0, one.facts, QUICK)
        generation, size = ring if isinstance(ring, tuple) else (ring, 0)
        fewer = Fewer(least, 5.0)
        given = replace(given, generation=generation, ring_size=size, fewer=fewer, asks=True)
        here = []
        for name, its in others.items():
            generation, size = its if isinstance(its, tuple) else (its, 0)
            member = one.member(int(name.removeprefix("worker_")))
            card = SimpleNamespace(generation=generation, ring_size=size, asks=True)
            here.append(SimpleNamespace(member=member, card=card))
        return given, here

    return make


@pytest.mark.parametrize(
    ("count", "ring", "others"),
    [
        (3, 7, {"worker_1": 7}),
        (3, 7, {"worker_2": 7}),
        (5, 7, {"worker_1": 7, "worker_2": 7}),
        (5, 0, {"worker_1": 7, "worker_2": 7, "worker_3": 7}),  # worker 0 was replaced
        (5, (9, 3), {"worker_1": (9, 3), "worker_4": 0}),  # the third of three is replaced
        (5, (9, 4), {"worker_1": (9, 4), "worker_2": (9, 4), "worker_4": (8, 5)}),
    ],
    ids=str,
)
def test_enough_of_those_who_trained_last_go_on(choose, count, ring, others):
    given, here = choose(count, count // 2 + 1, ring, **others)
    assert choose_members(given, here, 5.0) == here
    assert not held_up(given, here)
    assert choose_members(given, here, 4.9) is None


@pytest.mark.parametrize(
    ("count", "ring", "others", "trained"),
    [
        # Two replacements for worker 0: each may have one survivor.
        (3, 0, {"worker_1": 7}, "1 of the 3"),
        # Worker 0 was frozen and replaced, and finds the replacement of another.
        (3, 7, {"worker_2": 0}, "1 of the 3"),
        # A worker that was left out meets a second worker 0, while others train.
        (3, 0, {"worker_1": (7, 3)}, "1 of the 3"),
        # Half of the last ring is not more than half.
        (3, (8, 2), {"worker_1": 7}, "1 of the 2"),
        (3, (8, 2), {"worker_1": 0}, "1 of the 2"),
        (5, 0, {"worker_1": 9, "worker_2": 8, "worker_3": 8}, "1 of the 5"),
    ],
    ids=str,
)
def test_too_few_of_those_who_trained_last_wait(choose, count, ring, others, trained):
    given, here = choose(count, count // 2 + 1, ring, **others)
    assert choose_members(given, here, 1000.0) is None
    assert f"but only {trained} that trained last" in held_up(given, here)


@pytest.mark.parametrize("ring", [0, 7])
def test_all_go_on_whatever_they_remember(choose, ring):
    given, here = choose(3, 2, ring, worker_1=0, worker_2=8)
    assert choose_members(given, here, 0.0) == here


@pytest.mark.parametrize(
    ("awaited", "missing", "others", "after"),
    [
        # Worker 2 is taken in while 3 and 4 have been missing all the time.
        ({2}, {3, 4}, {"worker_1": (8, 2), "worker_2": 0}, 0.0),
        # Worker 2 has not come after all: the workers of the ring are enough.
        ({2}, {3, 4}, {"worker_1": (8, 2)}, 5.0),
        # Worker 2 had been waiting, and left before the ring ended.
        (set(), {2, 3, 4}, {"worker_1": (8, 2)}, 0.0),
        (set(), set(), {"worker_1": (8, 2), "worker_2": 0}, 5.0),
    ],
    ids=str,
)
def test_who_was_missing_already_is_not_waited_for_again(choose, awaited, missing, others, after):
    given, here = choose(5, 2, (8, 2), **others)  # as if two were enough of five
    given = replace(given, suspects=known(awaited, missing))
    assert choose_members(given, here, after) == here
    assert not after or choose_members(given, here, after - 0.1) is None


def test_who_was_not_in_the_last_ring_is_left_out_where_the_others_are_enough(choose):
    given, here = choose(5, 3, (8, 3), worker_1=(8, 3), worker_2=(8, 3), worker_3=7, worker_4=0)
    given = replace(given, suspects=Known(only_last_ring=True))
    assert choose_members(given, here, 0.0) == here[:2]
    given, here = choose(5, 3, 8, worker_1=8, worker_2=0, worker_3=0, worker_4=0)
    given = replace(given, suspects=Known(only_last_ring=True))
    assert choose_members(given, here, 0.0) == here


def test_who_is_left_out_is_taken_where_the_others_are_not_enough(choose):
    three = {f"worker_{place}": (8, 3) for place in (1, 2)}
    given, here = choose(5, 3, (8, 3), **three, worker_3=7, worker_4=0)
    given = replace(given, suspects=known(left_out=[4]))
    assert choose_members(given, here, 0.0) == here[:3]
    given = replace(given, suspects=known(left_out=[2, 3, 4]))
    assert choose_members(given, here, 0.0) == here


def test_with_no_patience_only_who_is_to_be_taken_in_is_waited_for(choose):
    given, here = choose(3, 2, 7, worker_1=7)
    given = replace(given, fewer=Fewer(2, 0.0))
    assert choose_members(given, here, 0.0) == here
    given = replace(given, suspects=known(awaited=[2]))
    assert choose_members(given, here, 0.0) is None
    assert choose_members(given, here, given.timing.alive_seconds) == here


def test_those_who_remember_nothing_wait_for_all_as_at_a_first_start(choose):
    given, here = choose(3, 2, 0, worker_1=0)
    assert choose_members(given, here, 1000.0) is None
    assert not held_up(given, here)


def test_no_two_groups_follow_one_ring(choose):
    """Of two groups that share no process, one waits, whichever workers were replaced."""
    followed = []
    for left in range(32):
        places = [place for place in range(5) if left >> place & 1]
        ways = []
        for mine in (True, False):  # this group's processes, or all others
            remembers = {place: 7 if (place in places) is mine else 0 for place in range(5)}
            own, others = remembers.pop(0), remembers
            for without in range(1, 5):  # all others are here, as replacements where needed
                here = {f"worker_{place}": others[place] for place in others if place != without}
                given, sessions = choose(5, 3, own, **here)
                if choose_members(given, sessions, 1000.0):
                    ways.append(mine)
        assert len(set(ways)) < 2
        followed += ways
    assert followed.count(True) == followed.count(False) > 0


@pytest.mark.parametrize("count", [3, 5, 7])
def test_no_ring_of_a_chain_is_followed_by_two_smaller_ones(choose, count):
    """Workers are absent, frozen, replaced and left out at random, and ask at random."""
    chance = random.Random(count)
    processes = [[(1, count)] for _ in range(count)]  # the last rings of each index's processes
    newest, followed = 1, []
    for _ in range(1000):
        for here in processes:
            if chance.random() < 0.1:
                here[:] = [*here[-2:], (0, 0)]  # a replacement, beside the one that is frozen
        who = [chance.randrange(len(here)) for here in processes]
        there = [place for place in range(1, count) if chance.random() < 0.8]
        others = {f"worker_{place}": processes[place][who[place]] for place in there}
        given, sessions = choose(count, count // 2 + 1, processes[0][who[0]], **others)
        tasks = [member.task for member in given.spec.members]
        given = replace(
            given,
            asks=chance.random() < 0.8,
            suspects=replace(
                known(left_out=[place for place in range(count) if chance.random() < 0.2]),
                only_last_ring=chance.random() < 0.3,
            ),
        )
        for session in sessions:
            session.card.asks = chance.random() < 0.8
        group = choose_members(given, sessions, 1000.0)
        if group is None:
            continue
        places = [0, *(tasks.index(session.member.task) for session in group)]
        if len(places) < count:
            followed.append(max(processes[place][who[place]][0] for place in [0, *there]))
        newest += 1
        for place in places:
            processes[place][who[place]] = (newest, len(places))
    assert len(followed) == len(set(followed)) > 20
