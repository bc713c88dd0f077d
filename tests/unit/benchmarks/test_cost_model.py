"""The cost model of sums agrees with the ring."""

import math

import numpy as np
import pytest

from benchmarks.cost.measured import fitted, predicted
from benchmarks.cost.two_levels import two_levels_seconds
from cluster_trainer.collectives.ring import ring as ring_module
from cluster_trainer.collectives.ring import streams
from entrypoint.network import cost
from entrypoint.network.cost import (
    Costs,
    Network,
    share_of_ideal,
    sum_seconds,
    way_of,
)
from harness.rings import on_all, rings

COSTS = Costs(sum=2e-5, hop=5e-5, near_byte=4e-10, far_byte=8e-10, rounded=6e-10)
GBIT = Network(1e9, 1e-4)


@pytest.fixture
def sent(monkeypatch):
    """The parts that each rank sends in each operation, as (rank, the sizes in bytes)."""
    found = []

    def noting(make):
        def note(numbers, rank, *more):
            flow = make(numbers, rank, *more)
            parts = [len(part) for part in flow._out._parts[1:]]  # noqa: SLF001  without the header
            found.append((rank, parts))
            return flow

        return note

    for name in ("of_two", "of_many", "round_trip"):
        monkeypatch.setattr(ring_module, name, noting(getattr(ring_module, name)))
    return found


@pytest.mark.parametrize("workers", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("count", [16, 16_384, 40_000, 80_000])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_as_many_hops_and_bytes_as_the_ring_sends(sent, workers, count, bfloat16):
    values = np.ones(count, np.float32)
    wire = "bfloat16" if bfloat16 else None
    with rings(workers) as made:
        on_all(made, lambda ring: ring.all_reduce(values, wire=wire))
    way = way_of(workers, values.nbytes, bfloat16=bfloat16)
    assert sorted(rank for rank, _ in sent) == [*range(workers)]
    for _, parts in sent:
        assert len(parts) == way.hops
        assert sum(parts) == pytest.approx(way.bytes, abs=4 * workers)


def test_it_has_the_rings_own_numbers():
    assert (cost.SMALL_BYTES, cost.GRAIN) == (ring_module.SMALL_BYTES, streams.GRAIN)


def test_one_worker_sums_nothing():
    assert sum_seconds(COSTS, GBIT, 1, 1e6) == 0
    assert share_of_ideal(0.01, 0.0, 0.1, 1) == 1


@pytest.mark.parametrize("workers", [2, 4, 16, 1000])
def test_never_faster_than_the_cable_and_the_processor(workers):
    way = way_of(workers, 9e6)
    seconds = sum_seconds(COSTS, GBIT, workers, 9e6)
    assert seconds >= way.bytes * 8 / GBIT.bits_a_second
    assert seconds >= way.bytes * COSTS.far_byte
    assert seconds >= sum_seconds(COSTS, Network(), workers, 9e6)


def test_latency_counts_where_it_is_longer_than_a_hop():
    """1,000 workers split 9 MB into chunks of 9 kB: 72 µs each at 1 Gbit/s, for 2 · 999 hops."""
    seconds = sum_seconds(Costs(0, 0, 0, 0), GBIT, 1000, 9e6)
    assert seconds == pytest.approx(1998 * (1e-4 + 9e3 * 8e-9) + 1e-4)
    alone = sum_seconds(Costs(0, 0, 0, 0), Network(1e9), 4, 9e6)
    assert sum_seconds(Costs(0, 0, 0, 0), GBIT, 4, 9e6) == pytest.approx(alone + 1e-4)


def test_bfloat16_halves_what_a_slow_cable_takes():
    slow = Network(1e8, 1e-4)
    both = [sum_seconds(COSTS, slow, 2, 1.39e6, bfloat16=wire) for wire in (False, True)]
    assert both[0] / both[1] == pytest.approx(2, rel=0.05)


def test_two_levels_are_for_many_workers():
    assert two_levels_seconds(COSTS, GBIT, 1000, 9e6) < 0.5 * sum_seconds(COSTS, GBIT, 1000, 9e6)
    assert two_levels_seconds(COSTS, GBIT, 7, 9e6) == sum_seconds(COSTS, GBIT, 7, 9e6)


def test_the_slowest_of_many_is_waited_for():
    shares = [share_of_ideal(0.01, 0.002, 0.05, workers) for workers in (1, 2, 10, 1000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(
        0.01 / (0.01 * (1 + 0.05 * math.sqrt(2 * math.log(1000))) + 0.002)
    )


def test_costs_are_found_from_what_they_make():
    sizes = (4_096, 65_536, 1_390_000, 9_000_000)
    keys = [(ranks, size, wire) for ranks in (2, 4) for size in sizes for wire in (False, True)]
    found = fitted({key: predicted(COSTS, key, processors=2) for key in keys}, processors=2)
    for name in ("sum", "hop", "near_byte", "far_byte", "rounded"):
        assert getattr(found, name) == pytest.approx(getattr(COSTS, name), rel=0.02)


def test_a_cost_is_never_negative():
    keys = {(2, 1_000_000, False): 1e-3, (2, 1_000, False): 2e-3, (4, 1_000, False): 1e-4}
    found = fitted(keys, processors=2)
    assert min(found.sum, found.hop, found.near_byte, found.far_byte, found.rounded) >= 0
