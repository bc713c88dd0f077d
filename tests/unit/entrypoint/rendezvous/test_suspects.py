"""Workers that are left out: for how long, and when that is forgotten."""

from __future__ import annotations

import pytest

from entrypoint.rendezvous.suspects import IN_VAIN, LONGEST_SECONDS, Suspects


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def left_out(clock) -> Suspects:
    """Five workers were a ring, and then only workers 0, 1 and 2."""
    one = Suspects(clock)
    one.note_ring(range(5))
    ring(one, 0, 1, 2)
    return one


def ring(one: Suspects, *places: int) -> None:
    """Let these workers meet and form a ring."""
    one.note_meeting(places)
    one.note_ring(places)


def meet_in_vain(one: Suspects, *places: int) -> None:
    """Let these workers meet twice without a ring. Only the last ring's workers may meet next."""
    for _ in range(2):
        assert not one.only_last_ring
        one.note_meeting(places)
        one.note_failure(places)
    assert one.only_last_ring


def test_who_was_lost_is_taken_in_as_soon_as_it_waits(left_out):
    assert left_out.admitted([4, 3]) == [4, 3]
    assert left_out.places == set()


def test_who_was_met_in_vain_is_left_out_for_ever_longer(left_out, clock):
    pauses = []
    for _ in range(7):
        meet_in_vain(left_out, 0, 1, 2, 3)
        ring(left_out, 0, 1, 2)
        assert left_out.places == {3}
        pauses.append(left_out.pause(3))
        assert left_out.why(3) == f"is left out for {pauses[-1]:g} s: {IN_VAIN}"
        clock.now += pauses[-1] - 0.1
        assert left_out.admitted([3]) == []
        clock.now += 0.1
        assert left_out.admitted([3]) == [3]
        assert not left_out.why(3)
    assert pauses == [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]


def test_who_is_left_out_is_named_once(left_out):
    meet_in_vain(left_out, 0, 1, 2, 4, 3)
    assert left_out.note_meeting((0, 1, 2)) == [3, 4]
    left_out.note_ring((0, 1, 2))
    assert left_out.note_meeting((0, 1, 2)) == []


def test_of_two_that_were_met_in_vain_each_is_tried_alone(left_out, clock):
    meet_in_vain(left_out, 0, 1, 2, 3, 4)
    ring(left_out, 0, 1, 2)
    clock.now += 30.0
    (first,) = left_out.admitted([3, 4])
    meet_in_vain(left_out, 0, 1, 2, first)
    ring(left_out, 0, 1, 2)
    (second,) = left_out.admitted([3, 4])
    assert {first, second} == {3, 4}
    ring(left_out, 0, 1, 2, second)
    assert left_out.places == {first}
    ring(left_out, 0, 1, second)  # worker 2 is lost, `second` stays
    ring(left_out, 0, 1)
    assert left_out.admitted([first, second]) == [second]  # not suspected, so it goes first
    assert left_out.places == {first}


def test_one_that_does_not_stay_is_left_out_from_the_second_time_on(left_out):
    pauses = []
    for _ in range(4):
        ring(left_out, 0, 1, 2, 3)
        assert left_out.places == set()
        ring(left_out, 0, 1, 2)
        pauses.append(round(left_out.pause(3)))
        assert left_out.places == {3}
    assert pauses == [0, 5, 10, 20]


def test_one_that_has_stayed_is_above_suspicion(left_out, clock):
    for _ in range(2):
        ring(left_out, 0, 1, 2, 3)
        ring(left_out, 0, 1, 2)
    ring(left_out, 0, 1, 2, 3)
    clock.now += LONGEST_SECONDS
    ring(left_out, 0, 1, 2)
    assert left_out.places == set()


def test_one_of_the_last_ring_is_not_suspected_for_having_been_lost(left_out):
    ring(left_out, 0, 1)
    assert left_out.places == set()
    assert left_out.admitted([2]) == [2]
