"""Stragglers are found by the activity of each worker, second by second."""

import random
from pathlib import Path

import pytest

from cluster_trainer.process.stragglers import Interval, Stragglers, in_words

# Seconds, and the shares of them in which the chief and the other worker were at work.
EQUAL = Path(__file__).parent / "recorded/two_equal_workers.txt"
QUARTER = """
0.89 0.11 1.00
1.17 0.22 1.00
1.32 0.14 1.00
1.02 0.20 0.75
1.05 0.00 0.00
1.00 0.13 0.55
1.85 0.00 0.76
1.23 0.29 1.00
0.99 0.28 0.82
1.98 0.06 1.00
0.91 0.34 0.83
1.26 0.42 0.88
"""
"""The other worker had a quarter of a processor. The machine had a load of 10 on 2 processors."""


def recorded(text):
    rows = [tuple(map(float, line.split())) for line in text.split("\n") if line]
    return [Interval(seconds, tuple(busy)) for seconds, *busy in rows]


def named_after(rows, seconds=1.0):
    """Return when workers were first named, and which ones. Rows have a share for each worker."""
    stragglers = Stragglers(len(rows[0]))
    for number, row in enumerate(rows, start=1):
        stragglers.note(Interval(seconds, tuple(row)))
        if stragglers.slow:
            return number * seconds, stragglers.slow
    return None


def test_a_recorded_worker_with_a_quarter_of_a_processor_is_named_within_15_seconds():
    stragglers = Stragglers(2)
    for interval in recorded(QUARTER):
        stragglers.note(interval)
        if stragglers.slow:
            break
    assert stragglers.slow == (1,)
    assert stragglers.seconds < 15


def test_a_worker_that_becomes_slow_is_named_as_soon():
    stragglers = Stragglers(2)
    for interval in recorded(EQUAL.read_text())[:60]:
        stragglers.note(interval)
    seconds = 0.0
    for interval in recorded(QUARTER):
        stragglers.note(interval)
        seconds += interval.seconds
        if stragglers.slow:
            break
    assert stragglers.slow == (1,)
    assert seconds < 15


def test_recorded_equal_workers_are_not_named_on_a_machine_that_others_use():
    """Seven minutes, with a load of 15 on 2 processors."""
    stragglers = Stragglers(2)
    named = []
    for interval in recorded(EQUAL.read_text()):
        stragglers.note(interval)
        named.append(stragglers.slow)
    assert set(named) == {()}


@pytest.mark.parametrize("changes_sides", [pytest.param(False, marks=pytest.mark.long), True])
def test_an_hour_of_what_was_recorded_of_equal_workers_has_no_false_alarm(changes_sides):
    """Half minutes are drawn at random from the seven. Their seconds keep their order."""
    rows, chance = recorded(EQUAL.read_text()), random.Random(0)
    stragglers, seconds, named = Stragglers(2), 0.0, []
    while seconds < 3600:
        first, end = chance.randrange(len(rows)), seconds + 30
        side = chance.choice((1, -1)) if changes_sides else 1
        while seconds < end:
            one = rows[first % len(rows)]
            stragglers.note(Interval(one.seconds, one.busy[::side]))
            named.append(stragglers.slow)
            first, seconds = first + 1, seconds + one.seconds
    assert set(named) == {()}


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_a_worker_with_a_quarter_of_a_processor_is_named_within_10_seconds(workers):
    row = [0.28] * workers
    row[1] = 0.97
    when, who = named_after([row] * 30)
    assert who == (1,)
    assert when <= 10


def test_two_slow_ones_of_several_are_both_named():
    assert named_after([[0.3, 0.95, 0.3, 0.95, 0.3, 0.3]] * 30)[1] == (1, 3)


@pytest.mark.parametrize(("more", "is_named"), [(0.15, False), (0.18, True)])
def test_more_than_a_fifth_longer_over_half_a_minute_is_the_limit(more, is_named):
    """Without it, the calls would take 1 - more of their time: 1 / (1 - 1/6) = 1.2."""
    assert bool(named_after([[0.6, 0.6 + more, 0.6]] * 200)) is is_named


def test_a_hiccup_is_not_called_slow():
    quiet, hiccup = [[0.5, 0.5]] * 60, [[0.1, 1.0]] * 4
    assert named_after(quiet + hiccup + quiet) is None


def test_who_is_at_work_all_the_time_as_all_are_is_not_slow():
    assert named_after([[1.0, 1.0, 1.0]] * 100) is None


@pytest.mark.parametrize("workers", [2, *(pytest.param(n, marks=pytest.mark.long) for n in (4, 8))])
def test_an_hour_of_equal_workers_has_no_false_alarm(workers):
    """Each of ten looks a second finds each worker at work or not, at random."""
    chance = random.Random(workers)
    looks = range(10)
    rows = [
        [sum(chance.random() < 0.5 for _ in looks) / len(looks) for _ in range(workers)]
        for _ in range(3600)
    ]
    assert named_after(rows) is None


def test_one_that_has_recovered_is_named_no_more():
    stragglers = Stragglers(2)
    slow = []
    for row in [(0.3, 0.9)] * 30 + [(0.5, 0.5)] * 30:
        stragglers.note(Interval(1.0, row))
        slow.append(stragglers.slow)
    assert slow[29] == (1,)
    assert slow[-1] == ()


def test_calls_of_any_length_make_the_same_half_minute():
    long = named_after([[0.3, 0.97]] * 10, seconds=5.0)
    assert long == (20.0, (1,))


def test_it_is_said_in_words():
    stragglers = Stragglers(3)
    for _ in range(30):
        stragglers.note(Interval(1.0, (0.25, 0.75, 0.25)))
    assert in_words(stragglers, 1) == (
        "holds the others up: steps take 100 % longer for it (at work for 75% of the last 30 s, "
        "the others 25%)"
    )
