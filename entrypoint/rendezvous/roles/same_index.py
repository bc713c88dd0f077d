"""Decides which of two processes with one index stays, and tells the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from entrypoint.cluster.spec import Member
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.comparison import Contradictions, replaced, same_index
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.roles.conversation import hello
from entrypoint.rendezvous.roles.session import Session
from entrypoint.rendezvous.transport.connection import Connection, Dialer
from entrypoint.rendezvous.transport.messages import PING, PROBE, contradiction
from entrypoint.rendezvous.transport.reasons import PeerError, ReplacedError

NEITHER_ANSWERS = "another process has this index, and neither answers at its address"


class SameIndex:
    """Decides between two processes with one index: one has checked in, the other is new."""

    def __init__(self, attempt: Attempt, dialer: Dialer, is_new: Callable[[Card], bool]) -> None:
        self._attempt, self._dialer, self._is_new = attempt, dialer, is_new

    async def gives_way(self, session: Session, card: Card, where: str) -> bool:
        """Whether the process that has checked in gives way to the new one, which is at `where`.

        It gives way if it is the same process, dead, or replaced: then its connection ends. It also
        gives way if it is wrong: then its connection stays, to tell it so.

        Raises:
            ReplacedError: the new process was replaced.
            PeerError: it is unknown which process is wrong, and the gate need not end for all.
        """
        alive = self._attempt.timing.alive_seconds
        if session.card.boot != card.boot and await session.ask(PING, alive):
            if card.was_replaced_by(session.card):
                raise ReplacedError(session.connection.ip)
            if await self._is_the_right_one(card, session):
                self._accuse(session.card, session.connection.ip, where)
                return True
            if not session.card.was_replaced_by(card):
                self._accuse(card, where, session.connection.ip)
                return False
        session.connection.hang_up()
        return True

    async def _is_the_right_one(self, card: Card, session: Session) -> bool:
        """Whether the new process is the right one, if both processes are alive.

        Beside an earlier worker, a newcomer is wrong. Of two newcomers, the one that answers at the
        advertised address is right.
        """
        if not self._is_new(session.card):
            return False
        if not self._is_new(card):
            return True
        if session.card.was_replaced_by(card):
            return False  # `gives_way` ends its connection
        answers = await self._at_the_address(session.member)
        if answers not in (card.boot, session.card.boot):
            raise PeerError(NEITHER_ANSWERS)
        return answers == card.boot

    async def _at_the_address(self, member: Member) -> str:
        """Return the boot of the process that answers at a member's address; "" if none does."""
        with contextlib.suppress(PeerError):
            async with self._dialer.dial(member.address) as connection:
                return (await hello(self._attempt, connection, PROBE)).boot
        return ""

    def _accuse(self, card: Card, where: str, other: str) -> None:
        difference = same_index(self._attempt.spec, card.task, other)
        self._attempt.contradictions.add(card, where, difference)
        self._attempt.changed()

    async def send_away(self, connection: Connection, card: Card, error: ReplacedError) -> None:
        """Tell only the replaced process how the gate ends; ignore what it sends."""
        found = Contradictions()
        found.add(card, connection.ip, replaced(self._attempt.spec, card.task, error.by))
        await connection.send(contradiction(found.problems()))
        while True:
            await connection.receive(self._attempt.timing.message_seconds)
