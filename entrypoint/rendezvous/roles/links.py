"""Connects neighbours: each worker dials its right neighbour, and its left one dials it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from dataclasses import dataclass

from entrypoint.cluster.spec import Member
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.outcome import with_reasons
from entrypoint.rendezvous.transport.connection import Connection, Dialer
from entrypoint.rendezvous.transport.listener import Settle
from entrypoint.rendezvous.transport.messages import CARD, JOIN, LONGEST_TEXT, REFUSE, Message
from entrypoint.rendezvous.transport.reasons import NO_MESSAGE, PeerError

NOT_CONNECTED = "has not connected"
RING, PROBE = "ring", "probe"
"""The purposes of a connection: for the command, or for measuring the network."""
ANOTHER = "is not from the same meeting: one of the two has restarted since"


@dataclass(frozen=True)
class Circle:
    """The members of a ring, as every member sees them."""

    meeting: str
    generation: int
    positions: tuple[int, ...]
    """The places in the list of all workers, ascending."""
    measures: bool = False
    """Whether the network between its members is measured."""


class Links:
    """This worker's connections with its neighbours, for one purpose."""

    def __init__(self, attempt: Attempt, purpose: str) -> None:
        terms, self._attempt, self._purpose = attempt.terms, attempt, purpose
        connector = terms.network.connector(attempt.timing, asks_again=True)
        self._dialer = Dialer(connector, terms.token, attempt.timing)
        self._circle: Circle | None = None
        self._left: Connection | None = None
        self._right: Connection | None = None
        self._reason = "is being dialled"
        self._over = asyncio.Event()
        """Set once the connections are handed over, or given up."""
        self._news = asyncio.Condition()
        self._dialling: asyncio.Task[None] | None = None

    async def connect(self, circle: Circle, seconds: float) -> str:
        """Connect with both neighbours within `seconds`; return the missing ones and why, or ""."""
        self.drop()
        self._circle, self._over = circle, asyncio.Event()
        self._dialling = asyncio.create_task(self._dial(circle))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._news:
                self._news.notify_all()  # the left neighbour may have come already
                await self._news.wait_for(lambda: self._left and self._right)
        return with_reasons(self._missing(circle))

    @property
    def are_complete(self) -> bool:
        """Whether both neighbours are connected."""
        return bool(self._left and self._right)

    def hand_over(self) -> tuple[socket.socket, socket.socket]:
        """Hand over both connections, the left one first."""
        if not (self._left and self._right):
            raise PeerError(NO_MESSAGE)
        pair = self._left.hand_over(), self._right.hand_over()
        self.drop()
        return pair

    def drop(self) -> None:
        """Close the connections, unless they were handed over."""
        self._over.set()
        self._circle = self._left = self._right = None
        if self._dialling:
            self._dialling.cancel()
        self._dialling = None

    async def receive(self, connection: Connection, join: Message, settle: Settle) -> None:
        """Accept the left neighbour; refuse any other worker that asks to join."""
        card = Card.read(join)
        circle = await self._circle_of(join.text("meeting"), join.number("generation"))
        reason = self._refusal(card, circle)
        if circle is None or reason:
            await connection.send(Message(REFUSE, {"reason": reason}))
            await connection.dismiss()
            return
        settle()
        await connection.send(self._attempt.card.message(CARD))
        if self._left:
            self._left.hang_up()  # the neighbour has connected again
        self._left = connection
        await self._tell()
        # Nothing more is read here: the next bytes are for the command.
        await self._over.wait()

    async def _circle_of(self, meeting: str, generation: int) -> Circle | None:
        """Return the circle that a neighbour names; wait a moment until this worker knows it."""

        def is_there() -> bool:
            circle = self._circle
            if circle is None:
                return False
            return (circle.meeting, circle.generation) == (meeting, generation)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._attempt.timing.message_seconds / 2), self._news:
                await self._news.wait_for(is_there)
                return self._circle
        return None

    def _refusal(self, card: Card, circle: Circle | None) -> str:
        """Return why a worker is not the left neighbour; "" if it is."""
        if circle is None or card.hosts != self._attempt.card.hosts:
            return ANOTHER
        left = self._neighbour(circle, -1).task
        return f"is {card.task}, where {left} should be" if card.task != left else ""

    async def _dial(self, circle: Circle) -> None:
        right = self._neighbour(circle, 1)
        while True:
            try:
                async with self._dialer.dial(right.address) as connection:
                    await self._join(connection, circle, right)
                    self._right = connection
                    await self._tell()
                    await self._over.wait()
                    return
            except PeerError as error:
                self._reason = str(error)
            pause = self._attempt.timing.redial_seconds
            await asyncio.sleep(pause * random.uniform(0.67, 1.33))  # noqa: S311 -- no secret

    async def _join(self, connection: Connection, circle: Circle, right: Member) -> None:
        """Introduce this worker to its right neighbour. Raises PeerError if it is refused."""
        card = self._attempt.card.message(JOIN)
        fields = {"meeting": circle.meeting, "generation": circle.generation}
        fields |= {"purpose": self._purpose}
        message = Message(JOIN, {**card.fields, **fields})
        answer = await connection.ask(message, self._attempt.timing.message_seconds)
        if answer.kind == REFUSE:
            raise PeerError(f"refuses this worker: it {answer.text('reason', LONGEST_TEXT)}")
        if answer.kind != CARD:
            raise PeerError(NO_MESSAGE)
        if (task := Card.read(answer).task) != right.task:
            raise PeerError(f"{task} answers there")

    def _missing(self, circle: Circle) -> list[tuple[Member, str]]:
        missing = {} if self._left else {self._neighbour(circle, -1): NOT_CONNECTED}
        if not self._right:
            missing[self._neighbour(circle, 1)] = self._reason
        return list(missing.items())

    def _neighbour(self, circle: Circle, steps: int) -> Member:
        rank = circle.positions.index(self._attempt.place)
        place = circle.positions[(rank + steps) % len(circle.positions)]
        return self._attempt.spec.members[place]

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()
