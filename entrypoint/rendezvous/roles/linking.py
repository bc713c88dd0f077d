"""A member's part in forming a ring: it connects with the neighbours that worker 0 names."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from entrypoint.errors import escaped, shortened
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.roles.links import Circle
from entrypoint.rendezvous.roles.neighbours import Neighbours
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.messages import LINK, LONGEST_TEXT, Message
from entrypoint.rendezvous.transport.reasons import NO_MESSAGE, PeerError


class Linking:
    """The neighbours that worker 0 named last, if any."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt, self.neighbours = attempt, Neighbours(attempt)
        self._task: asyncio.Task[None] | None = None

    def start(self, connection: Connection, message: Message) -> None:
        """Start to connect with the neighbours. Raises PeerError for an impossible ring."""
        attempt, number = self._attempt, message.number("number")
        generation = message.number("generation")
        if generation <= attempt.terms.generation:
            raise PeerError(NO_MESSAGE)
        self.stop()
        note_positions(attempt, message)
        positions = attempt.meeting.positions or attempt.terms.everyone
        measures = message.fields.get("measures") is True
        circle = Circle(attempt.meeting.identity, generation, positions, measures)
        self._task = asyncio.create_task(self._connect(connection, circle, number))

    async def _connect(self, connection: Connection, circle: Circle, number: int) -> None:
        """Connect with the neighbours, and report missing ones to the chief."""
        missing = await self.neighbours.connect(circle, self._attempt.timing.link_seconds)
        with contextlib.suppress(PeerError):  # noticed where the chief's messages are read
            fields = {"number": number, "missing": shortened(escaped(missing), LONGEST_TEXT)}
            await connection.send(Message(LINK, fields))

    def stop(self) -> None:
        """Give up the connections."""
        self.neighbours.drop()
        if self._task:
            self._task.cancel()
        self._task = None

    def finish(self) -> None:
        """Hand the ring to the attempt. Raises PeerError if there is none."""
        if not (self._task and self._task.done()):
            raise PeerError(NO_MESSAGE)
        self._attempt.ring = self.neighbours.hand_over()


def note_positions(attempt: Attempt, message: Message) -> None:
    """Note the places of the workers that continue, () for all. Raises PeerError."""
    positions = message.numbers("positions")
    if positions and not _may_be(attempt, positions):
        raise PeerError(NO_MESSAGE)
    attempt.meeting = replace(attempt.meeting, positions=positions)


def _may_be(attempt: Attempt, positions: tuple[int, ...]) -> bool:
    """Whether these workers can continue without the others: worker 0, this one, and a majority."""
    count, chief = len(attempt.spec.members), attempt.terms.places[attempt.spec.chief.task]
    return (
        list(positions) == sorted({*positions})
        and positions[-1] < count < 2 * len(positions)
        and {chief, attempt.place} <= {*positions}
    )
