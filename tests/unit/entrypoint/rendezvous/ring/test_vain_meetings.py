"""Meetings at the gate after which there is no ring: those of the last ring go on by themselves."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from entrypoint.rendezvous.meeting import Fewer, Meeting
from entrypoint.rendezvous.outcome import BackAtTheGateError, PeersMissingError
from entrypoint.rendezvous.ring import regroup
from entrypoint.rendezvous.ring.regroup import Gate, Group, Waiting
from entrypoint.rendezvous.ring.wanted import Ring
from entrypoint.supervision.peers.shared import Generations
from harness.timing import QUICK

ALL = (0, 1, 2, 3, 4)
MISSED, AT_THE_GATE = PeersMissingError("gave up"), BackAtTheGateError("is at the gate")


class Played:
    """A worker's group of five, where each meeting and what comes of it is given."""

    def __init__(self, cluster, monkeypatch) -> None:
        monkeypatch.setattr(regroup, "released", self._released)
        monkeypatch.setattr(regroup, "form", self._form)
        five = cluster(5)
        self.said: list[str] = []
        given = replace(five.given(0, five.facts, QUICK), say=self._say)
        gate = Gate(
            timeout_seconds=60.0,
            most_losses=9,
            waiting=lambda: contextlib.nullcontext(Waiting(self._say, self._say_nothing)),
            timing=QUICK,
            fewer=Fewer(3, 5.0),
        )
        self.group = Group(given, meeting=Meeting("m"), seen=Generations(), gate=gate)
        self.steps: list[tuple[tuple[int, ...], Exception | None]] = []
        self.asked = []
        """With what the gate was passed."""

    def ring(self, *steps) -> Ring:
        """Return the next ring: after these meetings, each of some and with an error or None."""
        self.steps = list(steps)
        return asyncio.run(self.group.ring())

    def _say(self, level: str, line: str) -> None:
        self.said.append(f"{level} {line}")

    def _say_nothing(self, line: str) -> None:
        pass

    async def _released(self, given) -> Meeting:
        self.asked.append(given)
        places, _ = self.steps[0]
        return Meeting("m", () if places == ALL else places, all_ask=True)

    async def _form(self, _) -> Ring:
        places, error = self.steps.pop(0)
        if error:
            raise error
        return Ring(0, len(places), 1, places, None, None)


@pytest.fixture
def played(cluster, monkeypatch) -> Played:
    """Return a group of five that has been a ring."""
    one = Played(cluster, monkeypatch)
    one.ring((ALL, None))
    return one


@pytest.mark.parametrize("first", [MISSED, AT_THE_GATE])
@pytest.mark.parametrize("second", [MISSED, AT_THE_GATE])
@pytest.mark.parametrize("places", [ALL, (0, 1, 2, 4)], ids=str)
def test_after_two_in_a_row_those_of_the_last_ring_go_on(played, first, second, places):
    """Whoever notices it, and whether another worker has come or gone meanwhile."""
    ring = played.ring((ALL, first), (places, second), ((0, 1, 2), None))
    assert [given.only_last_ring for given in played.asked] == [False, False, True]
    assert ring.positions == (0, 1, 2)


def test_after_a_ring_they_are_counted_anew(played):
    for _ in range(3):
        played.ring((ALL, MISSED), (ALL, None))
    assert not any(given.only_last_ring for given in played.asked)
