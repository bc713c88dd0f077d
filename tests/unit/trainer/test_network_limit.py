"""When the network limits the speed, and what is said of it."""

import logging

import pytest

from cluster_trainer.collectives.ring.traffic import Traffic
from cluster_trainer.fits.network_watch import NetworkWatch
from cluster_trainer.process.network_limit import Interval, NetworkLimit


def after(*intervals: Interval) -> NetworkLimit:
    limit = NetworkLimit()
    for interval in intervals:
        limit.note(interval)
    return limit


@pytest.mark.parametrize(
    ("calls", "sums", "is_reached"),
    [(29, 0.9, False), (31, 0.9, True), (60, 0.34, True), (60, 0.33, False)],
)
def test_it_takes_half_a_minute_of_waiting(calls, sums, is_reached):
    assert after(*[Interval(1.0, sums, sums, 10)] * calls).is_reached is is_reached


def test_only_the_last_half_minute_counts():
    slow, fast = [Interval(1.0, 0.9, 0.9, 10)] * 40, [Interval(1.0, 0.0, 0.1, 10)] * 40
    assert not after(*slow, *fast).is_reached
    assert after(*fast, *slow).is_reached


def test_the_rate_and_the_gain_are_those_that_were_measured():
    limit = after(*[Interval(2.0, 1.0, 1.25, 125_000_000)] * 20)  # 0.8 Gbit/s, half of the time
    words = limit.in_words(is_rounded=False)
    assert ("50%" in words, "0.8 Gbit/s" in words, "about 1.3 times" in words) == (True,) * 3
    assert "TRAINER_WIRE" not in limit.in_words(is_rounded=True)
    assert "TRAINER_SYNC_EVERY=16" in limit.in_words(is_rounded=True)
    assert "TRAINER_WIRE" not in limit.in_words(is_rounded=False, in_rounds=True)


class RingOfTwo:
    size, traffic = 2, Traffic()


def watch(*, is_chief: bool = True) -> tuple[NetworkWatch, RingOfTwo, dict[str, float]]:
    ring, waits = RingOfTwo(), {"sums": 0.0}
    return (
        NetworkWatch(ring, lambda: waits["sums"], is_chief=is_chief, is_rounded=False),
        ring,
        waits,
    )


@pytest.mark.parametrize(("is_chief", "peers", "lines"), [(1, 0.9, 1), (0, 0.9, 0), (1, 0.1, 0)])
def test_the_chief_says_once_what_the_one_that_waits_least_waits(is_chief, peers, lines, caplog):
    one, ring, waits = watch(is_chief=bool(is_chief))
    caplog.set_level(logging.WARNING, "trainer")
    for _ in range(80):
        sums, exchanging = one.mine()
        one.take(1.0, [max(sums, -peers), max(exchanging, -peers)])
        waits["sums"] += 0.8
        ring.traffic = ring.traffic.and_then(Traffic(1_000_000, 0.8))
    assert len([1 for line in caplog.messages if "TRAINER_WIRE" in line]) == lines
    assert bool(one.reason) is bool(lines)


def test_a_new_ring_begins_at_nothing():
    one, ring, waits = watch()
    ring.traffic = Traffic(500, 5.0)
    assert one.mine() == [0, 0]  # the first call compiles
    ring.traffic, waits["sums"] = Traffic(100, 1.0), 2.0
    assert one.mine() == [-2, -1]


def test_nobody_knows_of_tensorflows_sums():
    one = NetworkWatch(None, float, is_chief=True, is_rounded=False)
    assert one.mine() == [0, 0]
