"""Slow and long links, and the line that sums up all links."""

from __future__ import annotations

import json
from math import inf, nan

import pytest

from entrypoint.network.link import Link, in_a_line, long_links, read_link, slow_links

MILLI, MBIT, GBIT = 1e-3, 1e6, 1e9


def links(*given: tuple[float, float]) -> list[Link]:
    """Return the links of a ring with these round trips and rates, in ms and Gbit/s."""
    size = len(given)
    return [
        Link(f"worker-{rank}", f"worker-{(rank + 1) % size}", trip * MILLI, rate * GBIT)
        for rank, (trip, rate) in enumerate(given)
    ]


@pytest.mark.parametrize(
    ("given", "slow"),
    [
        ([(0.3, 9.4), (0.3, 9.1), (0.3, 0.94)], ["worker-2 -> worker-0"]),
        ([(0.3, 0.1), (0.3, 9.1), (0.3, 0.94)], ["worker-0 -> worker-1"]),
        ([(0.3, 9.4), (0.3, 0.94)], ["worker-1 -> worker-0"]),
        (
            [(0.3, 9.4), (0.3, 9.4), (0.3, 0.9), (0.3, 0.5)],
            ["worker-3 -> worker-0", "worker-2 -> worker-3"],
        ),
        ([(0.3, 9.4), (0.3, 7.0), (0.3, 8.8)], []),
    ],
)
def test_a_link_is_slow_where_most_are_faster(given, slow):
    assert [link.name for link in slow_links(links(*given))] == slow


@pytest.mark.parametrize(
    ("trips", "far"),
    [((0.3, 0.3, 40), ["worker-2 -> worker-0"]), ((40, 39, 41), []), ((0.1, 0.1, 0.8), [])],
)
def test_a_round_trip_is_long_where_most_are_much_shorter(trips, far):
    found = links(*((trip, 1.0) for trip in trips))
    assert [link.name for link in long_links(found)] == far


def test_the_line_has_what_is_usual_and_names_the_slowest_and_the_longest():
    alike = in_a_line(links((0.31, 9.44), (0.29, 9.1)))
    assert alike == "0.31 ms, 9.4 Gbit/s"
    differing = in_a_line(links((0.3, 9.1), (120, 9.1), (0.3, 0.094)))
    assert differing == (
        "0.3 ms, 9.1 Gbit/s; slowest worker-2 -> worker-0: 94 Mbit/s; "
        "longest worker-1 -> worker-2: 120 ms"
    )


def test_a_link_is_read_as_it_was_written():
    (link, _) = links((0.3, 9.1), (0.3, 9.1))
    assert read_link(json.loads(json.dumps(link.members))) == link


@pytest.mark.parametrize(
    "change",
    [
        {"round_trip_ms": nan},
        {"gbit_per_second": inf},
        {"gbit_per_second": -1},
        {"round_trip_ms": "x"},
        {"round_trip_ms": None},
    ],
)
def test_what_is_no_link_is_refused(change):
    with pytest.raises((ValueError, TypeError)):
        read_link(links((0.3, 9.1), (0.3, 9.1))[0].members | change)
