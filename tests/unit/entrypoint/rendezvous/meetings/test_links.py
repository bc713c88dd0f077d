"""The peers that a member accepts as its left neighbour, and the rings that it accepts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.transport.connection import Connection, Dialer
from entrypoint.rendezvous.transport.messages import (
    CARD,
    CHECK_IN,
    JOIN,
    LINK,
    PING,
    REFUSE,
    Message,
)
from entrypoint.rendezvous.transport.reasons import PeerError
from entrypoint.rendezvous.transport.timing import Timing
from harness.play import TOKEN, Play
from harness.simulation import MemoryNetwork

MEETING = "of this test"


class Acted:
    """Worker 0 of three, played by the test. Worker 1 checks in with it."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.network = MemoryNetwork(play.space, play.address(0).host)

    def card(self, kind: str, place: int, **fields: Any) -> Message:
        task = self.play.spec.members[place].task
        message = Card.of(self.play.facts, task, MEETING, is_chief=not place).message(kind)
        return Message(kind, {**message.fields, **fields})

    async def join(self, place: int, **fields: Any) -> Message:
        """Dial worker 1 as the worker at a place, and return the answer."""
        dialer = Dialer(self.network, TOKEN, Timing())
        async with dialer.dial(self.play.address(1)) as connection:
            return await connection.ask(self.card(JOIN, place, **fields), 10.0)

    async def lead(self, link: dict[str, object]) -> list[Message | str]:
        """Answer worker 1's check-in with LINK. Return its messages until it hangs up."""
        port = await self.network.open_port(
            self.play.spec, self.play.spec.members[0], 0.0, lambda *_: None
        )
        said: list[Message | str] = []
        async with Connection(await port.accept(), TOKEN, Timing()) as connection:
            await connection.greet(is_dialer=False)
            assert (await connection.receive(5.0)).kind == CHECK_IN
            await connection.send(self.card(CARD, 0))
            await connection.send(Message(LINK, {"number": 1, **link}))
            try:
                for _ in range(4):  # a chief that is silent for 10 s counts as lost
                    await asyncio.sleep(4.0)
                    await connection.send(Message(PING, {"number": 0}))
                    while (message := await connection.receive(30.0)).kind != PING:
                        said.append(message)
            except PeerError as error:
                said.append(str(error))
        port.close()
        return said


@pytest.fixture
def acted() -> Acted:
    return Acted(Play(3))


async def test_a_neighbour_of_another_meeting_generation_or_rank_is_refused(acted):
    acted.play.players[1].run()
    acted.play.players[1].ask()
    leading = asyncio.create_task(acted.lead({"generation": 7, "positions": []}))
    await asyncio.sleep(1.0)
    for place, meeting, generation in ((0, "another", 7), (0, MEETING, 8), (2, MEETING, 7)):
        answer = await acted.join(place, meeting=meeting, generation=generation)
        assert answer.kind == REFUSE, (place, meeting, generation)
    assert (await acted.join(0, meeting=MEETING, generation=7)).kind == CARD
    (missing, *_) = await leading
    assert isinstance(missing, Message)
    assert "worker-2 at" in missing.text("missing")
    assert "worker-0 at" not in missing.text("missing")


async def test_nobody_is_a_neighbour_before_there_is_a_ring_to_make(acted):
    acted.play.players[1].run()
    acted.play.players[1].ask()
    await asyncio.sleep(1.0)
    assert (await acted.join(0, meeting=MEETING, generation=7)).kind == REFUSE


@pytest.mark.parametrize(
    "link",
    [
        {"generation": 5, "positions": []},  # no newer than the last
        {"generation": 7, "positions": [1, 2]},  # without worker 0
        {"generation": 7, "positions": [0, 2]},  # without this worker
        {"generation": 7, "positions": [0, 1, 9]},
        {"generation": 7, "positions": [1, 0]},
        {"generation": 7, "positions": [0]},  # no majority
    ],
    ids=str,
)
async def test_what_can_be_no_ring_ends_the_connection(acted, link):
    one = acted.play.players[1]
    one.seen.note(5, 3)
    one.run()
    one.ask()
    (end,) = await acted.lead(link)
    assert isinstance(end, str)
