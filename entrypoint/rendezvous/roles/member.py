"""Another worker's role: check in with worker 0, and stay until it ends the meeting."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine
from math import inf

from entrypoint.errors import Problem
from entrypoint.rendezvous.attempt import FAREWELL_SECONDS, Attempt
from entrypoint.rendezvous.comparison import Contradictions
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.outcome import WENT_AHEAD, ContradictionError, Meeting
from entrypoint.rendezvous.roles.chief_lines import ChiefLines
from entrypoint.rendezvous.roles.conversation import answer, compare, follow, hello
from entrypoint.rendezvous.roles.linking import Linking, note_positions
from entrypoint.rendezvous.states import Expected, MemberState, member_state
from entrypoint.rendezvous.transport.connection import Connection, Dialer
from entrypoint.rendezvous.transport.listener import Listener, Settle, Strangers
from entrypoint.rendezvous.transport.messages import (
    AGAIN,
    AHEAD,
    CHECK_IN,
    CONTRADICTION,
    GO,
    JOIN,
    LINK,
    PING,
    READY,
    RELEASE,
    STATUS,
    WAIT,
    Message,
    contradiction,
    read_contradiction,
)
from entrypoint.rendezvous.transport.network import Port
from entrypoint.rendezvous.transport.reasons import NO_MESSAGE, NOT_ASKED, PeerError

REPLACED_CHIEF = "was in an earlier ring only: another process has replaced it since"
FIRST_REDIALS = 8
"""The first redials are faster: all workers start together, and the chief may be last."""


class MemberRole:
    """A member's actions. `loops` run as long as `decide`."""

    def __init__(self, attempt: Attempt, port: Port) -> None:
        self._attempt, self._timing, terms = attempt, attempt.timing, attempt.terms
        self._chief = attempt.spec.chief
        connector = terms.network.connector(self._timing, asks_again=True)
        self._dialer = Dialer(connector, terms.token, self._timing)
        strangers = Strangers(len(attempt.spec.members))
        self.listener = Listener(port, strangers, terms.token, self._timing, self._receive)
        self._linking, self._lines = Linking(attempt), ChiefLines(attempt, self._chief)
        expected = terms.suspects.expected(terms.places[self._chief.task])
        attempt.limit.note(is_starting=expected is Expected.STARTS)
        self._state = MemberState.DIALS
        """The state of the conversation with the chief."""
        self._session: Connection | None = None
        self._promised_until = 0.0
        self._redial = self._timing.redial_seconds / FIRST_REDIALS
        self._final: tuple[Problem, ...] = ()
        self._starts = 0
        """How often the chief's command was starting while this one waited for it."""

    def loops(self) -> list[Coroutine[None, None, None]]:
        """Return the loops that run until the decision."""
        return [self.listener.run(), self._keep_dialling(), self._report()]

    async def decide(self) -> Exception | None:
        """Return the error with which the gate ends; None after the release."""
        attempt = self._attempt
        while True:
            state = self._next_state()
            if state is MemberState.WENT:
                return None
            if state is MemberState.SENDS_AWAY:
                await attempt.send_away()
            elif state is MemberState.CONTRADICTED:
                if error := await self._contradict():
                    return error
            elif state is MemberState.GAVE_UP:
                status = self._lines.status(is_connected=self._session is not None)
                return attempt.gave_up(status, self._losses)
            elif state is MemberState.PROMISED:
                await attempt.news(self._promised_until - attempt.seconds)
            elif state is MemberState.LINKED:
                await attempt.news(inf)
            else:
                await attempt.news(attempt.limit.left_seconds)

    def _next_state(self) -> MemberState:
        attempt = self._attempt
        if self._state is MemberState.PROMISED and attempt.seconds >= self._promised_until:
            self._enter(MemberState.CHECKED_IN)
        is_late = attempt.limit.left_seconds <= 0
        return member_state(
            self._state,
            attempt.disagreement(attempt.is_new),
            is_over=is_late or self._losses > attempt.terms.most_losses,
        )

    def _enter(self, state: MemberState) -> None:
        """Enter a state; a worker that has gone does not come back."""
        if self._state is not MemberState.WENT:
            self._state = state
        self._attempt.changed()

    @property
    def _losses(self) -> int:
        """How often in a row the chief started and then was lost before a ring formed."""
        return max(0, self._starts - 1)

    async def _contradict(self) -> ContradictionError | None:
        """Let the chief report the problem if it can be reached; otherwise tell the peers.

        Returns None if the chief knows of it, but does not end the meeting: fewer may continue.
        """
        attempt, session = self._attempt, self._session
        if session and not self._final:
            with contextlib.suppress(PeerError):
                await session.send(contradiction(attempt.contradictions.problems()))
        # The chief also collects before it answers.
        seconds = self._timing.collect_seconds + (FAREWELL_SECONDS if session else 0.0)
        until = attempt.seconds + seconds
        while not self._final and await attempt.news(until - attempt.seconds):
            pass
        if attempt.terms.fewer and session and self._session is session and not self._final:
            self._lines.pass_over(attempt.contradictions.problems())
            attempt.contradictions = Contradictions()
            return None
        problems = self._final or attempt.contradictions.problems()
        await attempt.tell(problems)
        return ContradictionError(problems)

    async def _receive(self, connection: Connection, hello: Message, settle: Settle) -> None:
        """Answer a connection: the chief, a neighbour, or a worker that dialled by mistake."""
        if hello.kind == JOIN:
            await self._linking.neighbours.receive(connection, hello, settle)
            return
        card = Card.read(hello)
        await connection.send(self._attempt.answer_card())
        self._attempt.refuse_other_job(card)
        with self._attempt.knows(connection, card):
            await follow(self._attempt, connection)

    async def _keep_dialling(self) -> None:
        while True:
            try:
                async with self._dialer.dial(self._chief.address) as connection:
                    await self._check_in(connection)
            except PeerError as error:
                self._attempt.trouble = str(error)
            # a random pause, so that not all dial a restarted chief at the same moment
            await asyncio.sleep(self._redial * random.uniform(0.67, 1.33))  # noqa: S311 -- no secret
            self._redial = min(2 * self._redial, self._timing.redial_seconds)

    async def _check_in(self, connection: Connection) -> None:
        attempt = self._attempt
        card = await hello(attempt, connection, CHECK_IN)
        with attempt.knows(connection, card):
            if not card.is_chief:
                await compare(attempt, connection, card, self._chief)
                await follow(attempt, connection)
                return
            if 0 < card.generation < attempt.terms.generation:
                raise PeerError(REPLACED_CHIEF)  # it is in each ring, and is the first to know
            since = attempt.now
            self._session, attempt.meeting = connection, Meeting(card.boot)
            self._enter(MemberState.CHECKED_IN)
            attempt.limit.note(is_starting=False)
            # Told only to another chief, which does not know this worker.
            attempt.trouble = f"it has checked in with the process that answers at {connection.ip}"
            try:
                await self._attend(connection, card)
            finally:
                self._session = None
                self._linking.stop()
                self._enter(MemberState.DIALS)
                # a chief that hangs up at once is not dialled more often
                if attempt.now - since > self._timing.redial_seconds:
                    self._redial = self._timing.redial_seconds / FIRST_REDIALS

    async def _attend(self, connection: Connection, chief: Card) -> None:
        """Follow the chief's messages, until the release."""
        while self._state is not MemberState.WENT:
            message = await connection.receive(self._timing.silent_seconds)
            if message.kind == PING:
                await connection.send(message)
            elif message.kind == READY:
                await self._confirm(connection, message)
            elif message.kind == STATUS:
                self._hear(message)
            elif message.kind in (RELEASE, AHEAD, WAIT, LINK, AGAIN, GO):
                await self._go_on(connection, message)
            elif message.kind == CONTRADICTION:
                self._take_end(chief, read_contradiction(message))
            else:
                await answer(self._attempt, connection, message)

    async def _confirm(self, connection: Connection, message: Message) -> None:
        """Answer READY if there is no contradiction. Then only the chief decides, for a while."""
        if not self._attempt.contradictions:
            self._promise()
            await connection.send(message)

    def _hear(self, message: Message) -> None:
        """Log the chief's line. If the chief expects the wait, renew the time limit."""
        line = message.text("line")
        self._lines.hear(line)
        if message.fields.get("is_expected") is True:
            self._attempt.limit.renew(is_starting=False)
            self._attempt.terms.prolong(line)

    def _take_end(self, chief: Card, problems: tuple[Problem, ...]) -> None:
        """Accept the end of the gate. Raises PeerError if it ends only for a new chief."""
        if self._attempt.is_new(chief):
            self._lines.refuse_newcomer(problems)
        self._final = problems
        self._attempt.contradictions.take(problems)
        self._enter(MemberState.CHECKED_IN)

    async def _go_on(self, connection: Connection, message: Message) -> None:
        asks = self._attempt.terms.asks
        if message.kind == RELEASE and not asks:
            await self._release(connection, message)
        elif message.kind == AHEAD and not asks:
            await self._go_ahead(trains=message.flag("train"))
        elif message.kind == WAIT and asks:
            self._starts += 1
            self._attempt.limit.note(is_starting=True)
            self._attempt.limit.renew(is_starting=True)
            raise PeerError(NOT_ASKED)
        elif message.kind == LINK and asks:
            self._linking.start(connection, message)
            self._enter(MemberState.LINKED)
        elif message.kind == AGAIN and asks:
            self._linking.stop()
            self._enter(MemberState.CHECKED_IN)
        elif message.kind == GO and asks:
            self._linking.finish()
            self._enter(MemberState.WENT)
        else:
            raise PeerError(NO_MESSAGE)

    async def _go_ahead(self, *, trains: bool) -> None:
        """Close this worker's port and continue alone. The command asks for the others later."""
        await self.listener.close()
        self._attempt.is_ahead = True
        self._attempt.meeting = Meeting("" if trains else WENT_AHEAD)
        self._enter(MemberState.WENT)

    async def _release(self, connection: Connection, message: Message) -> None:
        """Close this worker's port, confirm that, and wait until the others' ports are closed."""
        note_positions(self._attempt, message)
        self._promise()
        await self.listener.close()
        with contextlib.suppress(PeerError):  # do not wait if the connection has ended
            await connection.send(message)
            while (await connection.receive(self._timing.release_seconds)).kind != GO:
                pass
        self._enter(MemberState.WENT)

    def _promise(self) -> None:
        """Leave the decision to the chief, for the longest time that it may take."""
        seconds = self._timing.alive_seconds + self._timing.release_seconds
        self._promised_until = self._attempt.seconds + seconds
        self._enter(MemberState.PROMISED)

    async def _report(self) -> None:
        """Log why the chief cannot be reached. Once connected, the chief's lines are logged."""
        await asyncio.sleep(self._timing.first_line_seconds)
        while True:
            if not self._session:
                self._attempt.terms.say("INFO", self._lines.status(is_connected=False))
            await asyncio.sleep(self._timing.line_seconds)
