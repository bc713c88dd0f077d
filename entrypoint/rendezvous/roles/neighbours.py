"""A worker's neighbours in a ring: connections for the command, and for measuring the network."""

from __future__ import annotations

import asyncio

from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.outcome import Ring
from entrypoint.rendezvous.roles.links import PROBE, RING, Circle, Links
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.listener import Settle
from entrypoint.rendezvous.transport.messages import Message
from entrypoint.rendezvous.transport.reasons import NO_MESSAGE, PeerError

PROBE_SECONDS = 0.25
"""The time that a complete ring waits for the measuring connections."""


class Neighbours:
    """This worker's connections with both neighbours, for both purposes."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._ring, self._probes = Links(attempt, RING), Links(attempt, PROBE)
        self._circle: Circle | None = None

    async def connect(self, circle: Circle, seconds: float) -> str:
        """Connect with both neighbours within `seconds`; return the missing ones and why, or "".

        The ring does not depend on the measuring connections, which are made in parallel.
        """
        self.drop()
        self._circle = circle
        if not circle.measures:
            return await self._ring.connect(circle, seconds)
        probing = asyncio.create_task(self._probes.connect(circle, seconds))
        try:
            missing = await self._ring.connect(circle, seconds)
            await asyncio.wait([probing], timeout=PROBE_SECONDS)
        finally:
            probing.cancel()
        return missing

    def hand_over(self) -> Ring:
        """Hand over this worker's part of the ring. Raises PeerError if there is none."""
        if (circle := self._circle) is None:
            raise PeerError(NO_MESSAGE)
        rank = circle.positions.index(self._attempt.place)
        pair = self._ring.hand_over()
        probes = self._probes.hand_over() if self._probes.are_complete else None
        self.drop()
        return Ring(
            *(rank, len(circle.positions), circle.generation, circle.positions), *pair, probes
        )

    def drop(self) -> None:
        """Close the connections, unless they were handed over."""
        self._ring.drop()
        self._probes.drop()
        self._circle = None

    async def receive(self, connection: Connection, join: Message, settle: Settle) -> None:
        """Accept the left neighbour; refuse any other worker that asks to join."""
        links = self._probes if join.fields.get("purpose") == PROBE else self._ring
        await links.receive(connection, join, settle)
