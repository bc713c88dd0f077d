"""The chief's view of a member that has checked in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from entrypoint.cluster.spec import Member
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.roles.conversation import answer
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.messages import LINK, PING, READY, RELEASE, Message
from entrypoint.rendezvous.transport.reasons import PeerError

DIALLED_BACK = "checked in, and is now being dialled back"


class Session:
    """The connection that a member keeps open, and the state of the member."""

    def __init__(
        self, attempt: Attempt, member: Member, card: Card, connection: Connection
    ) -> None:
        self._attempt, self.member, self.card = attempt, member, card
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._asked = 0
        self._answers: dict[int, asyncio.Future[Message | None]] = {}
        self.is_silent = False
        """Whether the member failed to answer in time."""
        self.is_verified = False
        """Whether the member also answers at its advertised address."""
        self.trouble = DIALLED_BACK
        """Why the member is not verified."""

    @property
    def is_here(self) -> bool:
        """Whether the member is verified and alive."""
        return self.is_verified and not self.is_silent

    @property
    def silence(self) -> float:
        """Seconds since its last message."""
        return self._loop.time() - self._heard

    @property
    def reason(self) -> str:
        """Why the member is not here."""
        if self.is_silent:
            return f"checked in, but has been silent for {self.silence:.0f} s"
        return self.trouble

    async def ask(
        self, kind: str, seconds: float, more: Mapping[str, object] | None = None
    ) -> Message | None:
        """Send a message and return the answer; None if none comes within `seconds`."""
        self._asked += 1
        number = self._asked
        answer: asyncio.Future[Message | None] = self._loop.create_future()
        self._answers[number] = answer
        try:
            async with asyncio.timeout(seconds):
                await self.connection.send(Message(kind, {"number": number, **(more or {})}))
                return await answer
        except (PeerError, TimeoutError):
            return None
        finally:
            self._answers.pop(number, None)

    async def send(self, message: Message) -> None:
        """Send a message without an answer; an ended connection is noticed elsewhere."""
        with contextlib.suppress(PeerError):
            await self.connection.send(message)

    async def attend(self) -> None:
        """Receive the member's messages, until the connection ends with PeerError."""
        try:
            while True:
                await self._take(await self.connection.receive(None))
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_result(None)

    async def _take(self, message: Message) -> None:
        """Handle one message: an answer to `ask`, or a question that any worker may ask."""
        self._heard = self._loop.time()
        if self.is_silent:
            self.is_silent = False
            self._attempt.changed()
        if message.kind not in (PING, READY, RELEASE, LINK):
            await answer(self._attempt, self.connection, message)
        elif (asked := self._answers.get(message.number("number"))) and not asked.done():
            asked.set_result(message)
