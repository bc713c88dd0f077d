"""A member's part: check in with the chief, and stay until it says how the gate ends."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Coroutine
from dataclasses import replace

from entrypoint.errors import Problem
from entrypoint.rendezvous.attempt import FAREWELL_SECONDS, Attempt
from entrypoint.rendezvous.comparison import Contradictions, in_a_line
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.meeting import Meeting
from entrypoint.rendezvous.outcome import ContradictionError, chief_line
from entrypoint.rendezvous.roles.conversation import answer, compare, follow, hello
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.dialer import Dialer
from entrypoint.rendezvous.transport.listener import Listener, Settle
from entrypoint.rendezvous.transport.messages import (
    AHEAD,
    CHECK_IN,
    CONTRADICTION,
    GO,
    PING,
    READY,
    RELEASE,
    STATUS,
    Message,
    contradiction,
    read_contradiction,
)
from entrypoint.rendezvous.transport.names import Names
from entrypoint.rendezvous.transport.reasons import NO_MESSAGE, PeerError
from entrypoint.rendezvous.transport.strangers import Strangers

REPLACED_CHIEF = "was in an earlier ring only: another process has replaced it since"
FIRST_REDIALS = 8
"""The first attempts follow each other faster: all start together, and the chief may be last."""
SELDOM_SECONDS = 600.0
"""The longest pause between two lines that say the same."""


class MemberRole:
    """What a member does; `loops` run while `decide` does."""

    def __init__(self, attempt: Attempt, listener: socket.socket) -> None:
        self._attempt, self._timing, given = attempt, attempt.timing, attempt.given
        self._chief = attempt.spec.chief
        names = Names(self._timing.look_up_seconds, self._timing.ask_again_seconds)
        self._dialer = Dialer(names, given.token, given.timing, 1)
        strangers = Strangers(len(attempt.spec.members))
        self.listener = Listener(listener, strangers, given.token, given.timing, self._receive)
        self._session: Connection | None = None
        self._redial = self._timing.redial_seconds / FIRST_REDIALS
        self._line, self._pause, self._say_again = "", 0.0, 0.0
        self._warning = ""
        self._final: tuple[Problem, ...] = ()
        self._is_released = False
        self._promised_until = 0.0
        """Until then only the chief decides: it was told that nothing is against the release."""

    def loops(self) -> list[Coroutine[None, None, None]]:
        """Return what runs until the decision."""
        return [self.listener.run(), self._keep_dialling(), self._report()]

    async def decide(self) -> Exception | None:
        """Return the error with which the gate ends, None after the release."""
        attempt, timeout = self._attempt, self._attempt.given.timeout_seconds
        while not self._is_released:
            promised = attempt.seconds < self._promised_until
            if attempt.contradictions.are_all_of(attempt.is_new):
                await attempt.send_away()
            elif attempt.contradictions and not promised:
                if error := await self._contradict():
                    return error
                continue
            until = self._promised_until if promised else timeout
            if not await attempt.news(until - attempt.seconds) and attempt.seconds >= timeout:
                return attempt.gave_up(self._status())
        return None

    async def _contradict(self) -> ContradictionError | None:
        """Let the chief say it to all, if it can be reached; else say it to who is connected.

        None if the chief has heard of it and nobody ends for it, where fewer may go on.
        """
        attempt, session = self._attempt, self._session
        if session and not self._final:
            with contextlib.suppress(PeerError):
                await session.send(contradiction(attempt.contradictions.problems()))
        # The chief collects, too, before it answers.
        seconds = self._timing.collect_seconds + (FAREWELL_SECONDS if session else 0.0)
        until = attempt.seconds + seconds
        while not self._final and await attempt.news(until - attempt.seconds):
            pass
        if attempt.given.fewer and session and self._session is session and not self._final:
            self._pass_over(attempt.contradictions.problems())
            attempt.contradictions = Contradictions()
            return None
        problems = self._final or attempt.contradictions.problems()
        await attempt.tell(problems)
        return ContradictionError(problems)

    async def _receive(self, connection: Connection, hello: Message, _: Settle) -> None:
        """Answer one who has dialled this member: the chief, or one who takes it for the chief."""
        card = Card.read(hello)
        await connection.send(self._attempt.answer_card())
        with self._attempt.knows(connection, card):
            await follow(self._attempt, connection)

    async def _keep_dialling(self) -> None:
        """Check in with the chief, again whenever the connection has ended."""
        while True:
            try:
                async with self._dialer.dial(self._chief.address) as connection:
                    await self._check_in(connection)
            except PeerError as error:
                self._attempt.trouble = str(error)
            # Not all at the same moment, after a chief that has restarted.
            await asyncio.sleep(self._redial * random.uniform(0.67, 1.33))  # noqa: S311 -- no secret
            self._redial = min(2 * self._redial, self._timing.redial_seconds)

    async def _check_in(self, connection: Connection) -> None:
        """Introduce this worker, and stay if it is the chief that answers."""
        attempt = self._attempt
        card = await hello(attempt, connection, CHECK_IN)
        with attempt.knows(connection, card):
            if not card.is_chief:
                await compare(attempt, connection, card, self._chief)
                await follow(attempt, connection)
                return
            if 0 < card.generation < attempt.given.generation:
                raise PeerError(REPLACED_CHIEF)  # worker 0 is in each ring, and knows it first
            self._session, attempt.meeting = connection, Meeting(card.boot)
            since = asyncio.get_running_loop().time()
            # Only another chief hears of it: one that does not know of this worker.
            attempt.trouble = f"it has checked in with the process that answers at {connection.ip}"
            try:
                await self._attend(connection, card)
            finally:
                self._session, self._promised_until = None, 0.0
                # A chief that ends it at once, each time, need not be asked more often for that.
                if asyncio.get_running_loop().time() - since > self._timing.redial_seconds:
                    self._redial = self._timing.redial_seconds / FIRST_REDIALS

    async def _attend(self, connection: Connection, chief: Card) -> None:
        """Do what the chief says, until the release."""
        while not self._is_released:
            message = await connection.receive(self._timing.silent_seconds)
            if message.kind in (PING, READY):
                await self._answer_alive(connection, message)
            elif message.kind == STATUS:
                self._hear(message.text("line"))
                if message.fields.get("is_expected") is True:
                    self._attempt.began = asyncio.get_running_loop().time()
                    self._attempt.given.prolong(self._line)
            elif message.kind == RELEASE:
                await self._release(connection, message)
            elif message.kind == AHEAD and not self._attempt.given.asks:
                await self._go_ahead()
            elif message.kind == CONTRADICTION:
                self._take_end(chief, read_contradiction(message))
            else:
                await answer(self._attempt, connection, message)

    def _take_end(self, chief: Card, problems: tuple[Problem, ...]) -> None:
        """Take how the gate ends; raise PeerError where it ends for a chief alone that is new."""
        if self._attempt.is_new(chief):
            found = "; ".join(map(in_a_line, problems))
            self._warn(f"{chief.task} was in no ring with this worker, and ends alone: {found}")
            raise PeerError(f"the process that answered there differs, and has ended: {found}")
        self._final, self._promised_until = problems, 0.0
        self._attempt.contradictions.take(problems)
        self._attempt.changed()

    def _pass_over(self, problems: tuple[Problem, ...]) -> None:
        """Say what another worker found, and worker 0 did not end for."""
        found = "; ".join(map(in_a_line, problems))
        self._warn(f"another worker does not agree, and has no say for {self._chief.task}: {found}")

    def _warn(self, warning: str) -> None:
        """Say what is wrong, once."""
        if warning != self._warning:
            self._warning = warning
            self._attempt.given.say("WARNING", warning)

    def _hear(self, line: str) -> None:
        """Say what the chief says; the same again ever more seldom: it may last for days."""
        now = asyncio.get_running_loop().time()
        if line != self._line:
            self._line, self._pause = line, self._timing.line_seconds
        elif now < self._say_again:
            return
        self._attempt.given.say("INFO", line)
        self._say_again, self._pause = now + self._pause, min(2 * self._pause, SELDOM_SECONDS)

    async def _answer_alive(self, connection: Connection, message: Message) -> None:
        """Answer PING; and READY if nothing is against it, which is a promise for a while."""
        if message.kind == READY:
            if self._attempt.contradictions:
                return
            self._promise()
        await connection.send(message)

    async def _release(self, connection: Connection, message: Message) -> None:
        """Close the own port, say so, and wait for the others' ports to be closed, too."""
        attempt, positions = self._attempt, message.numbers("positions")
        if positions and not self._may_be(positions):
            raise PeerError(NO_MESSAGE)
        all_ask = message.flag("all_ask")
        attempt.meeting = replace(attempt.meeting, positions=positions, all_ask=all_ask)
        self._promise()
        await self.listener.close()
        with contextlib.suppress(PeerError):  # what cannot be said any more is not waited for
            await connection.send(message)
            while (await connection.receive(self._timing.release_seconds)).kind != GO:
                pass
        self._is_released = True
        self._attempt.changed()

    def _may_be(self, positions: tuple[int, ...]) -> bool:
        """Whether these can go on without the others: with worker 0, this one, and the most."""
        attempt, count = self._attempt, len(self._attempt.spec.members)
        return (
            list(positions) == sorted({*positions})
            and positions[-1] < count < 2 * len(positions)
            and {attempt.spec.members.index(self._chief), attempt.place} <= {*positions}
        )

    async def _go_ahead(self) -> None:
        """Close the own port, without a meeting: the others train, and meet this worker later."""
        await self.listener.close()
        self._attempt.meeting, self._is_released = Meeting(), True
        self._attempt.changed()

    def _promise(self) -> None:
        """Leave the decision to the chief for as long as it may take."""
        seconds = self._timing.alive_seconds + self._timing.release_seconds
        self._promised_until = self._attempt.seconds + seconds
        self._attempt.changed()

    def _status(self) -> str:
        """Return who is missing, as far as this member knows."""
        if self._session and self._line:
            return self._line
        silent = "checked in, but the chief has not yet said who is missing"
        reason = silent if self._session else self._attempt.trouble
        if self._line:  # it gives up at the same moment, or was lost itself
            reason = f"{reason} (it said before: {self._line})"
        return chief_line(self._chief, reason, self._attempt.seconds)

    async def _report(self) -> None:
        """Say why the chief cannot be reached; once it is, its own lines are said."""
        await asyncio.sleep(self._timing.first_line_seconds)
        while True:
            if not self._session:
                self._attempt.given.say("INFO", self._status())
            await asyncio.sleep(self._timing.line_seconds)
