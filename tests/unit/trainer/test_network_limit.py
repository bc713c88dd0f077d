"""The network as the limit of the speed: when it is, and the advice."""

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


def interval(share: float) -> Interval:
    """Return a second of training with one sum, which took this share of it."""
    return Interval(1.0, share, share, 1_000_000, 1)


@pytest.mark.parametrize(
    ("calls", "sums", "is_reached"),
    [(29, 0.9, False), (31, 0.9, True), (60, 0.34, True), (60, 0.33, False)],
)
def test_it_takes_half_a_minute_of_waiting(calls, sums, is_reached):
    assert after(*[interval(sums)] * calls).is_reached is is_reached


def test_only_the_last_half_minute_counts():
    slow, fast = [interval(0.9)] * 40, [interval(0.0)] * 40
    assert not after(*slow, *fast).is_reached
    assert after(*fast, *slow).is_reached


def test_no_more_than_all_of_the_time_is_waited():
    assert after(*[interval(1.2)] * 40).share == 1


def test_the_rate_and_the_gain_are_those_that_were_measured():
    limit = after(*[Interval(2.0, 1.0, 1.25, 125_000_000, 10)] * 20)  # 0.8 Gbit/s, half of the time
    words = limit.in_words(is_rounded=False)
    assert ("50%" in words, "0.8 Gbit/s" in words, "up to 1.3 times" in words) == (True,) * 3
    assert "TRAINER_WIRE" not in limit.in_words(is_rounded=True)
    assert "TRAINER_SYNC_EVERY=16" in limit.in_words(is_rounded=True)
    assert "TRAINER_WIRE" not in limit.in_words(is_rounded=False, in_rounds=True)


@pytest.mark.parametrize("how", [{}, {"is_rounded": True}, {"in_rounds": True}])
def test_round_trips_are_not_blamed_on_the_rate(how):
    short = Interval(1.0, 0.5, 0.5, 500 * 4096, 500)
    words = after(*[short] * 40).in_words(**{"is_rounded": False} | how)
    assert "about 1 ms" in words
    assert "larger batches" in words
    assert "TRAINER_SYNC_EVERY" in words
    assert [one for one in ("Gbit/s", "TRAINER_WIRE", "times") if one in words] == []


def test_no_gain_is_promised_for_sparse_gradients():
    """Their rows are not rounded."""
    words = after(*[Interval(1.0, 0.6, 0.0, 0, 0)] * 40).in_words(is_rounded=False)
    assert "60%" in words
    assert [one for one in ("Gbit/s", "TRAINER_WIRE", "times", " ms") if one in words] == []


def test_of_both_the_dense_gradients_alone_gain_from_rounding():
    both = Interval(1.0, 0.8, 0.4, 1_000_000, 1)
    words = after(*[both] * 40).in_words(is_rounded=False)
    assert "TRAINER_WIRE=bfloat16 would train up to 1.2 times" in words
    assert "TRAINER_SYNC_EVERY" not in words  # it would send whole tables, not their rows


def test_small_sums_do_not_hide_many_rows():
    rows = Interval(1.0, 0.8, 0.01, 4096, 1)
    assert " ms" not in after(*[rows] * 40).in_words(is_rounded=False)


class RingOfTwo:
    size, traffic = 2, Traffic()


def watch(
    limit: NetworkLimit, *, is_chief: bool = True
) -> tuple[NetworkWatch, RingOfTwo, dict[str, float]]:
    ring, waits = RingOfTwo(), {"sums": 0.0}
    one = NetworkWatch(limit, ring, lambda: waits["sums"], is_chief=is_chief, is_rounded=False)
    return one, ring, waits


def train(
    one: NetworkWatch, ring: RingOfTwo, waits: dict[str, float], calls: int, peers: float = 0.9
) -> None:
    for _ in range(calls):
        sums, exchanging = one.mine()
        one.take(1.0, [max(sums, -peers), max(exchanging, -peers)])
        waits["sums"] += 0.8
        ring.traffic = ring.traffic.and_then(Traffic(1_000_000, 0.8, 1))


@pytest.mark.parametrize(("is_chief", "peers", "lines"), [(1, 0.9, 1), (0, 0.9, 0), (1, 0.1, 0)])
def test_the_chief_warns_once_by_the_worker_that_waits_least(is_chief, peers, lines, caplog):
    one, ring, waits = watch(NetworkLimit(), is_chief=bool(is_chief))
    caplog.set_level(logging.WARNING, "trainer")
    train(one, ring, waits, 80, peers)
    assert len([1 for line in caplog.messages if "TRAINER_WIRE" in line]) == lines
    assert bool(one.reason) is bool(lines)


def test_all_fits_of_a_process_have_one_warning_and_one_window(caplog):
    limit = NetworkLimit()
    caplog.set_level(logging.WARNING, "trainer")
    for fit in range(1, 8):
        one, ring, waits = watch(limit)
        train(one, ring, waits, 12)
        assert len(caplog.messages) == (fit > 2), fit
        assert bool(one.reason) is (fit > 2), fit


def test_the_watch_counts_the_sums():
    one, ring, waits = watch(NetworkLimit())
    for _ in range(40):
        one.take(1.0, one.mine())
        waits["sums"] += 0.8
        ring.traffic = ring.traffic.and_then(Traffic(400 * 4096, 0.8, 400))
    assert "about 2 ms" in one.reason


def test_a_new_ring_begins_at_nothing():
    one, ring, waits = watch(NetworkLimit())
    ring.traffic = Traffic(500, 5.0, 5)
    assert one.mine() == [0, 0]  # the first call compiles
    ring.traffic, waits["sums"] = Traffic(900, 1.0, 1), 2.0
    assert one.mine() == [-2, -1]


def test_nobody_knows_of_tensorflows_sums():
    one = NetworkWatch(NetworkLimit(), None, float, is_chief=True, is_rounded=False)
    assert one.mine() == [0, 0]
