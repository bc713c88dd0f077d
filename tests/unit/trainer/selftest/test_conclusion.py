"""The rates, and the collectives to use."""

import pytest

from cluster_trainer.selftest.conclusion import conclusion
from cluster_trainer.selftest.parts import ALL, ONE, RING, TENSORFLOW
from cluster_trainer.selftest.table import Row, State


def rows(**rates):
    names = {"one": ONE, "all": ALL, "ring": RING, "tensorflow": TENSORFLOW}
    return [
        Row(
            name=names[name],
            state=State.HELD if rate else State.FAILED,
            found="",
            facts={"examples_per_second": rate, "parameters": 350_000, "batch": 128},
        )
        for name, rate in rates.items()
    ]


def test_nothing_follows_from_nothing():
    assert conclusion([]) == []


def test_one_machine_has_rates_alone():
    (sentence,) = conclusion(rows(one=1000.0, all=1900.0))
    assert "one device 1,000, all devices 1,900" in sentence


@pytest.mark.parametrize(
    ("ring", "tensorflow", "taken"),
    [
        (1000.0, 1600.0, "use TensorFlow's collectives: they are 1.6 times"),
        (1000.0, 1100.0, "use the ring: it is as fast"),
        (2000.0, 1000.0, "use the ring: it is 2.0 times as fast"),
    ],
)
def test_the_ring_is_taken_unless_the_other_way_is_much_faster(ring, tensorflow, taken):
    _, way = conclusion(rows(one=500.0, ring=ring, tensorflow=tensorflow))
    assert taken in way


def test_a_way_that_failed_is_not_compared():
    found = conclusion(rows(one=500.0, ring=900.0, tensorflow=0.0))
    assert len(found) == 1


def test_machines_that_gain_nothing_are_told():
    *_, last = conclusion(rows(one=900.0, all=1800.0, ring=600.0, tensorflow=500.0))
    assert "3.0 times as fast on one machine" in last
