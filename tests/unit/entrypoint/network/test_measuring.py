"""All workers of a ring measure its links, over real sockets in one event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from benchmarks.clusters import link
from entrypoint.network.left_side import bits_per_second
from entrypoint.network.measuring import Measured, measure
from entrypoint.network.protocol import AT_A_START, CLOSED, SILENT, WRONG, Effort, MeasuringError
from harness.rings import over_tcp

QUICK = Effort(5, 0.05, 2**20, 0.1, patience_seconds=0.5)
MBIT_80 = 80_000_000
Pair = tuple[socket.socket, socket.socket]
"""The sender's end and the receiver's end."""


def measured_by(
    pairs: Sequence[Pair], ranks: Sequence[int] | None = None, effort: Effort = QUICK
) -> list[list[Measured] | BaseException]:
    """Return the result of each rank. The pair of a rank connects it to its right neighbour."""
    size = len(pairs)

    async def run() -> list[list[Measured] | BaseException]:
        each = [
            measure(rank, size, pairs[rank - 1][1], pairs[rank][0], effort)
            for rank in (range(size) if ranks is None else ranks)
        ]
        return await asyncio.gather(*each, return_exceptions=True)

    return asyncio.run(run())


def blamed(results: Sequence[list[Measured] | BaseException]) -> set[tuple[int, str]]:
    assert all(isinstance(one, MeasuringError) for one in results), results
    return {(one.rank, one.reason) for one in results}


@contextmanager
def limited(bits_per_second: float) -> Iterator[Pair]:
    """Yield a connection through a rate-limited network."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        dialled, dialler = over_tcp()
        join = (link.Switch(bits_per_second), dialler, "127.0.0.1", server.getsockname()[1])
        through = threading.Thread(target=link.join, args=join)
        through.start()
        yield dialled, server.accept()[0]
        through.join(20)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_workers_know_all_links(size):
    pairs = [over_tcp() for _ in range(size)]
    results = measured_by(pairs)
    assert all(one == results[0] for one in results)
    assert len(results[0]) == size
    assert all(one.round_trip_seconds > 0 for one in results[0])
    assert all(one.bits_per_second > 0 for one in results[0])
    assert [end.fileno() for pair in pairs for end in pair] == [-1] * 2 * size  # all are closed


def test_a_slow_link_is_measured_and_does_not_slow_the_others_down():
    with limited(MBIT_80) as slow:
        results = measured_by([over_tcp(), slow, over_tcp()], effort=AT_A_START)
    rates = [one.bits_per_second for one in results[0]]
    assert 0.4 * MBIT_80 < rates[1] < 1.3 * MBIT_80  # other tests may delay a thread
    assert min(rates[0], rates[2]) > 3 * rates[1]


def test_at_a_start_it_takes_little_time_and_little_data():
    with limited(MBIT_80 / 10) as slow:
        began = time.monotonic()
        results = measured_by([over_tcp(), slow], effort=AT_A_START)
        assert time.monotonic() - began < 1.5
    assert [len(links) for links in results] == [2, 2]
    assert AT_A_START.data_bytes < 10_000_000
    assert AT_A_START.ping_seconds + AT_A_START.data_seconds <= 0.3


@pytest.mark.parametrize("reason", [SILENT, CLOSED])
def test_a_worker_that_does_not_answer_is_named_by_all_others(reason):
    pairs = [over_tcp() for _ in range(4)]
    if reason == CLOSED:
        for end in (pairs[1][1], pairs[2][0]):
            end.close()
    assert blamed(measured_by(pairs, [0, 1, 3])) == {(2, reason)}
    for end in (pairs[1][1], pairs[2][0]):
        end.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"nonsense\n",
        b"{}\n",
        b'{"pong": 1}\n{"told": [1.0, 2.0, 3.0]}\n' * 5,
        b'{"error": [7, "x"]}\n',
        b"x" * 2**21,
    ],
)
def test_a_neighbour_that_sends_garbage_is_named(garbage):
    right, answering = over_tcp()
    sending = threading.Thread(target=answering.sendall, args=(garbage,))
    sending.start()
    left, other = over_tcp()
    assert blamed(measured_by([(right, answering), (other, left)], [0])) == {(1, WRONG)}
    sending.join(20)
    answering.close()
    left.close()


def test_a_cancelled_measurement_closes_its_connections_at_once():
    pairs = [over_tcp() for _ in range(2)]

    async def run() -> float:
        measuring = asyncio.create_task(measure(0, 2, pairs[1][1], pairs[0][0], AT_A_START))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        measuring.cancel()
        await asyncio.gather(measuring, return_exceptions=True)
        return time.monotonic() - began

    assert asyncio.run(run()) < 0.3
    assert (pairs[1][1].fileno(), pairs[0][0].fileno()) == (-1, -1)
    for end in (pairs[0][1], pairs[1][0]):
        end.close()


def test_the_first_half_of_the_data_does_not_count():
    burst = [(0.0, 0), (0.001, 500_000)]
    steady = [(0.001 + 0.01 * count, 500_000 + 100_000 * count) for count in range(1, 11)]
    assert bits_per_second([*burst, *steady]) == pytest.approx(80_000_000)
    late = [(0.0, 0), (0.1, 1_000), *((0.1 + 0.01 * n, 1_000 + 100_000 * n) for n in range(1, 9))]
    assert bits_per_second(late) == pytest.approx(80_000_000)


@pytest.mark.parametrize(
    ("arrivals", "rate"), [([(1.0, 0)], 0.0), ([(1.0, 0), (1.5, 1_000)], 16_000.0)]
)
def test_little_data_have_a_rate_too(arrivals, rate):
    assert bits_per_second(arrivals) == pytest.approx(rate)
