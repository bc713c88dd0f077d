"""A wrong worker at an address counts as missing at first, and as a contradiction if it stays."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.transport.reasons import PeerError
from harness.simulation import simulate
from harness.timing import QUICK

PATIENT = dataclasses.replace(QUICK, passing_seconds=60.0)


def test_one_that_had_the_address_for_a_moment_ends_nobody(cluster):
    """As when two containers restart, and one gets the address that the other had."""
    three = cluster(3)
    moved = three.world.space.moved
    chief, other, last = (three.member(rank).address for rank in range(3))
    moved[last.host, chief] = other
    stays = three.start(2, timing=PATIENT)
    new = three.start(1)
    stays.wait_for("worker-0 at", "worker-1 answers there")
    moved.clear()
    leads = three.start(0)
    assert [worker.end() for worker in (leads, new, stays)] == [None] * 3


def test_one_that_stays_there_is_wrong(cluster):
    three = cluster(3)
    chief, other, last = (three.member(rank).address for rank in range(3))
    three.world.space.moved[last.host, chief] = other
    stays = three.start(2)
    three.start(1)
    error = stays.end()
    assert error.exit_code == 78
    assert "accepted: 0, because it answers at worker-0's address" in str(error)


@pytest.fixture
def met(cluster):
    """Return a function that meets workers at worker 1's address, one after the other."""
    two = cluster(2)
    expected = two.member(1)

    def meet(
        *cards: tuple[int, str], patience: float = 0.0, pause: float = 0.0, **given: float
    ) -> list[bool]:
        """Tell for each (index, process) whether its card counts."""

        async def count() -> list[bool]:
            timing = dataclasses.replace(QUICK, passing_seconds=patience)
            attempt = Attempt(dataclasses.replace(two.terms(0, two.facts, timing), **given))
            found = []
            for index, boot in cards:
                await asyncio.sleep(pause)
                card = Card.of(two.facts, two.member(index).task, boot, is_chief=not index)
                try:
                    attempt.refuse_passing(card, expected)
                    found.append(True)
                except PeerError as error:
                    assert str(error) == "worker-0 answers there"  # noqa: PT017 -- it may not be raised
                    found.append(False)
            return found

        return simulate(count())

    return meet


def test_it_has_to_answer_twice(met):
    assert met((0, "a"), (0, "a"), (0, "a")) == [False, True, True]


def test_it_counts_as_well_if_it_is_started_again_in_between(met):
    assert met((0, "a"), (0, "b"), (0, "c")) == [False, True, True]


def test_the_right_one_in_between_begins_anew(met):
    assert met((0, "a"), (1, "c"), (0, "a"), (0, "a")) == [False, True, False, True]


def test_it_has_to_answer_for_a_while(met):
    assert met((0, "a"), (0, "a"), (0, "a"), patience=60.0) == [False, False, False]


def test_a_short_gate_has_time_for_it(met):
    cards = [(0, "a")] * 3
    assert met(*cards, patience=60.0, pause=0.06, timeout_seconds=0.3) == [False, False, True]
