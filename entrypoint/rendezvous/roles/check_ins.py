"""The chief's list of members: checked in, dialled back, or missing with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from entrypoint.cluster.spec import Member, Task
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.outcome import NOT_HEARD_FROM
from entrypoint.rendezvous.roles.conversation import compare, follow, hello
from entrypoint.rendezvous.roles.same_index import SameIndex
from entrypoint.rendezvous.roles.session import Session
from entrypoint.rendezvous.transport.connection import Connection, Dialer
from entrypoint.rendezvous.transport.listener import Settle
from entrypoint.rendezvous.transport.messages import CHECK_IN, PING, PROBE, Message
from entrypoint.rendezvous.transport.reasons import NO_MESSAGE, PeerError, ReplacedError

DIALLED_BACK_AT_ONCE = 64
PROBED_AT_ONCE = 32
PROBES_A_SECOND = 50
"""Limits the load on the network when a thousand workers are missing."""


class CheckIns:
    """The sessions of members. A member is here once its session is verified."""

    def __init__(self, attempt: Attempt) -> None:
        terms, self._attempt, self._timing = attempt.terms, attempt, attempt.timing
        self.sessions: dict[Task, Session] = {}
        self._reasons: dict[Task, str] = {}
        self._newest = terms.generation
        self._connector = terms.network.connector(terms.timing, asks_again=False)
        self._back = Dialer(self._connector, terms.token, terms.timing, DIALLED_BACK_AT_ONCE)
        self._prober = Dialer(self._connector, terms.token, terms.timing, PROBED_AT_ONCE)
        self._same_index = SameIndex(attempt, self._prober, self.is_new)

    @property
    def others(self) -> list[Member]:
        """All members but the chief."""
        return [member for member in self._attempt.spec.members if member != self._attempt.me]

    @property
    def here(self) -> list[Session]:
        """The workers that are here."""
        return [session for session in self.sessions.values() if session.is_here]

    def is_new(self, card: Card) -> bool:
        """Whether a worker was not in the newest ring of agreeing workers, and may be left out."""
        return bool(self._attempt.terms.fewer) and card.generation < self._newest

    def was_probed(self, member: Member) -> bool:
        """Whether the chief knows why a member is missing."""
        return member.task in self._reasons

    def missing(self) -> list[tuple[Member, str]]:
        """Return the members that are not here, with the reasons."""
        reasons = {}
        for member in self.others:
            session = self.sessions.get(member.task)
            if session is None:
                reasons[member] = self._reasons.get(member.task, NOT_HEARD_FROM)
            elif not session.is_here:
                reasons[member] = session.reason
        return list(reasons.items())

    async def receive(self, connection: Connection, hello: Message, settle: Settle) -> None:
        """Serve a member that has dialled the chief, until the connection ends."""
        attempt, card = self._attempt, Card.read(hello)
        await connection.send(attempt.answer_card())
        attempt.refuse_other_job(card)
        with attempt.knows(connection, card):
            if hello.kind != CHECK_IN:  # from another chief, or from this one
                await follow(attempt, connection)
                return
            agrees = await self._agrees(connection, card)
            try:
                is_admitted = agrees and await self._is_free(card, connection.ip)
            except ReplacedError as error:
                settle()
                await self._same_index.send_away(connection, card, error)
                return
            if is_admitted:
                await self._admit(connection, card, settle)
            else:
                settle()  # the member must be told how this ends
                await follow(attempt, connection)

    async def _agrees(
        self, connection: Connection, card: Card, expected: Member | None = None
    ) -> bool:
        """Compare like `compare`, and remember the rings of workers that agree."""
        agrees = await compare(self._attempt, connection, card, expected)
        if agrees:
            self._newest = max(self._newest, card.generation)
        return agrees

    async def _is_free(self, card: Card, where: str) -> bool:
        """Whether the index is free, or the other process with it gives way; see SameIndex."""
        while session := self.sessions.get(card.task):
            if not await self._same_index.gives_way(session, card, where):
                return False
            self._forget(session, NOT_HEARD_FROM)
        return True

    async def _admit(self, connection: Connection, card: Card, settle: Settle) -> None:
        member = self._attempt.member(card.task)
        if member is None or member == self._attempt.me:
            raise PeerError(NO_MESSAGE)
        settle()
        session = Session(self._attempt, member, card, connection)
        self.sessions[card.task] = session
        verifying = asyncio.create_task(self._verify(session))
        try:
            await session.attend()
        finally:
            verifying.cancel()
            before = "checked in" if session.is_verified else session.trouble
            self._drop(session, f"{before}, but its connection has ended: it was stopped or lost")

    def _drop(self, session: Session, reason: str) -> None:
        session.connection.hang_up()
        self._forget(session, reason)

    def _forget(self, session: Session, reason: str) -> None:
        if self.sessions.get(session.member.task) is session:
            del self.sessions[session.member.task]
            self._reasons[session.member.task] = reason
        self._attempt.changed()

    async def _verify(self, session: Session) -> None:
        """Dial a member back at its advertised address until the same process answers there."""
        self._connector.forget(session.member.address)
        while not session.is_verified:
            try:
                card = await self._look(self._back, session.member)
                session.is_verified = card is not None and card.boot == session.card.boot
                self._attempt.changed()
            except PeerError as error:
                session.trouble = (
                    f"checked in from {session.connection.ip}, but does not answer at its "
                    f"advertised address ({error})"
                )
            if not session.is_verified:
                await asyncio.sleep(self._timing.probe_seconds)

    async def _look(self, dialer: Dialer, member: Member) -> Card | None:
        """Return the worker at a member's address; None after a contradiction was reported."""
        attempt = self._attempt
        async with dialer.dial(member.address) as connection:
            card = await hello(attempt, connection, PROBE)
            self._refuse_misled(card, member)
            with attempt.knows(connection, card):
                if await self._agrees(connection, card, member):
                    if 0 < attempt.terms.generation < card.generation:
                        attempt.newer = member  # worker 0 is in each ring, and is the first to know
                        attempt.changed()
                    session = self.sessions.get(member.task)
                    if session is None or session.card.boot == card.boot:
                        return card
                    if await self._is_free(card, str(member.address)):
                        return card
                await follow(attempt, connection)
                return None

    def _refuse_misled(self, card: Card, member: Member) -> None:
        """Raise PeerError if the worker that answers at this address is verified at its own.

        During a run the list is known to be right. So the worker's machine may have got the address
        of a lost worker.
        """
        found = self.sessions.get(card.task)
        is_right = found and found.is_verified and found.card.boot == card.boot
        if is_right and card.task != member.task and self._attempt.terms.fewer and self._newest:
            raise PeerError(f"{card.task} answers there, and at its own address, too")

    def loops(self) -> list[Coroutine[None, None, None]]:
        """Return the loops that run until the decision."""
        return [self.probe(), self.ping()]

    async def ping(self) -> None:
        """Ping members regularly, to find silent ones."""
        pause, alive = self._timing.ping_seconds, self._timing.alive_seconds
        while True:
            await asyncio.sleep(pause)
            quiet = [one for one in self.sessions.values() if one.silence > pause / 2]
            for session in quiet:
                session.is_silent |= session.silence > self._timing.silent_seconds
            await asyncio.gather(*(session.ask(PING, alive) for session in quiet))

    async def probe(self) -> None:
        """Probe missing members regularly, to learn the reasons."""
        await asyncio.sleep(self._timing.probe_seconds / 2)  # most come by themselves
        while True:
            missing = [member for member in self.others if member.task not in self.sessions]
            await asyncio.gather(*(self._probe(member) for member in missing))
            pause = max(self._timing.probe_seconds, len(missing) / PROBES_A_SECOND)
            await asyncio.sleep(pause)

    async def _probe(self, member: Member) -> None:
        try:
            card = await self._look(self._prober, member)
        except PeerError as error:
            reason = str(error)
        else:
            reason = _not_checked_in(card.trouble if card else "")
        if member.task not in self.sessions:
            self._reasons[member.task] = reason


def _not_checked_in(trouble: str) -> str:
    because = f"; it says of the chief's address: {trouble}" if trouble else ""
    return f"it is running and answers, but has not checked in{because}"
