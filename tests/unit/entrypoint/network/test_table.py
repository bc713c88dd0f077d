"""The output of the command `network`: the links, and the estimated speed-up of training."""

from __future__ import annotations

import json

import pytest

from entrypoint.network.cost import Network, sum_seconds
from entrypoint.network.link import Link
from entrypoint.network.speed_up import (
    BFLOAT16,
    EXACT,
    FEWER,
    TYPICAL,
    Training,
    network_of,
    speed_ups,
)
from entrypoint.network.table import as_json, as_text

FAST = [
    Link("worker-0", "worker-1", 0.0003, 9.4e9),
    Link("worker-1", "worker-2", 0.0003, 9.3e9),
    Link("worker-2", "worker-0", 0.0003, 9.3e9),
]
SLOW = [*FAST[:2], Link("worker-2", "worker-0", 0.0003, 1e8)]
TRAINING = Training(25e6, 0.25)


def gains(links: list[Link], training: Training = TRAINING) -> dict[str, float]:
    return {one.way: one.times or 0.0 for one in speed_ups(links, training)}


def test_all_wait_for_the_slowest_link():
    assert network_of(SLOW) == Network(1e8, pytest.approx(0.00015))
    assert gains(SLOW)[EXACT] < gains(FAST)[EXACT] / 5


def test_the_estimate_is_the_models():
    (exact, rounded, fewer) = speed_ups(FAST, TRAINING)
    network = network_of(FAST)
    assert exact.sums_seconds == sum_seconds(TYPICAL, network, 3, 1e8)
    assert rounded.sums_seconds == sum_seconds(TYPICAL, network, 3, 1e8, bfloat16=True)
    assert fewer.sums_seconds == sum_seconds(TYPICAL, network, 3, 3e8) / 16
    assert exact.times == pytest.approx(3 * 0.25 / (0.25 + exact.sums_seconds))


def test_on_a_slow_network_fewer_bytes_train_faster():
    found = gains(SLOW)
    assert found[EXACT] < found[BFLOAT16] < found[FEWER]
    assert max(gains(FAST).values()) < 3


def test_a_dead_link_is_no_division_by_zero():
    dead = [*FAST[:2], Link("worker-2", "worker-0", 0.0, 0.0)]
    assert gains(dead)[EXACT] == pytest.approx(0, abs=1e-3)
    assert as_text(dead, TRAINING)


def test_the_table_has_each_link_and_names_the_slow_one():
    lines = as_text(SLOW, TRAINING).splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["worker-0", "worker-1"],
        ["worker-1", "worker-2"],
        ["worker-2", "worker-0"],
    ]
    assert lines[3].split()[2:] == ["0.3", "ms", "0.1", "Gbit/s", "slow"]
    assert [line for line in lines if "worker-2 -> worker-0" in line]
    assert [line.split()[0] for line in lines if line.endswith(("worker", "way", "itself"))] == [
        *(EXACT, BFLOAT16, FEWER)
    ]


def test_without_a_training_nothing_is_estimated():
    assert EXACT not in as_text(FAST, None)
    assert json.loads(as_json(FAST, None))["estimates"] == []


def test_without_the_time_of_a_step_there_is_no_speed():
    found = json.loads(as_json(FAST, Training(25e6)))["estimates"]
    assert [one["speed_up"] for one in found] == [None] * 3
    assert all(one["sums_ms"] > 0 for one in found)


def test_the_json_has_what_the_table_has():
    found = json.loads(as_json(SLOW, TRAINING))
    assert found["workers"] == len(found["links"]) == 3
    assert found["links"][2] == {
        "from": "worker-2",
        "to": "worker-0",
        "round_trip_ms": 0.3,
        "gbit_per_second": 0.1,
    }
    assert (found["slow"], found["long"]) == (["worker-2 -> worker-0"], [])
    assert [one["way"] for one in found["estimates"]] == [EXACT, BFLOAT16, FEWER]
    assert found["estimates"][0]["speed_up"] == pytest.approx(gains(SLOW)[EXACT], rel=0.01)
