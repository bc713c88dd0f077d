"""The network of the first ring is measured, over separate connections."""

from __future__ import annotations

import asyncio

import pytest

from entrypoint.network.link import Link
from entrypoint.network.measuring import Measured
from entrypoint.network.protocol import MeasuringError
from entrypoint.rendezvous import ring_measurement as module
from entrypoint.rendezvous.roles.neighbours import Neighbours
from harness.play import Play, check_circle

RATES = [9.4e9, 9.1e9, 9.4e8]


@pytest.fixture
def measured(monkeypatch):
    """The measurements that were made, as (rank, left connection, right connection)."""
    found = []

    async def measure(rank, size, left, right, effort):  # noqa: ARG001
        found.append((rank, left, right))
        return [Measured(0.0003, rate) for rate in RATES]

    monkeypatch.setattr(module, "measure", measure)
    return found


async def measure(play):
    await asyncio.gather(*(one.group.measure_network() for one in play.players))


async def test_all_measure_the_first_ring_and_the_chief_says_what_they_found(measured):
    play = Play(3)
    rings = await play.begin()
    check_circle(rings)
    await measure(play)
    assert sorted(rank for rank, _, _ in measured) == [0, 1, 2]
    ends = {rank: (left, right) for rank, left, right in measured}
    assert all(ends[rank][1].other is ends[(rank + 1) % 3][0] for rank in range(3))
    assert not {*ends[0]} & {rings[0].left, rings[0].right}
    last = [one.lines[-1] for one in play.players]
    assert [line.split()[0] for line in last] == ["INFO", "DEBUG", "DEBUG"]
    assert "network: 0.3 ms, 9.1 Gbit/s; slowest worker-2 -> worker-0: 0.94 Gbit/s" in last[0]
    assert play.players[1].links == [
        Link(f"worker-{rank}", f"worker-{(rank + 1) % 3}", 0.0003, rate)
        for rank, rate in enumerate(RATES)
    ]


async def test_later_rings_are_not_measured(measured):
    play = Play(3)
    await play.begin()
    await measure(play)
    check_circle(rings := await play.ring())
    assert [ring.probes for ring in rings] == [None] * 3
    await measure(play)
    assert len(measured) == 3


async def test_a_ring_does_not_depend_on_being_measured(monkeypatch, measured):
    receive = Neighbours.receive

    async def refuse_probes(self, connection, join, settle):
        if join.fields["purpose"] == "probe":
            await connection.dismiss()
        else:
            await receive(self, connection, join, settle)

    monkeypatch.setattr(Neighbours, "receive", refuse_probes)
    play = Play(3)
    await play.all_run()
    began = asyncio.get_running_loop().time()
    check_circle(rings := await play.ring())
    assert asyncio.get_running_loop().time() - began < 1.5
    assert [ring.probes for ring in rings] == [None] * 3
    await measure(play)
    assert measured == []


async def test_a_worker_that_does_not_answer_is_named_and_nothing_else_happens(monkeypatch):
    async def fail(*_):
        raise MeasuringError(2, "does not answer")

    monkeypatch.setattr(module, "measure", fail)
    play = Play(3)
    await play.begin()
    await measure(play)
    for one in play.players:
        assert one.lines[-1].startswith("DEBUG")
        assert "worker-2 at 10.0.0.3:2222 does not answer" in one.lines[-1]
        assert one.links is None
