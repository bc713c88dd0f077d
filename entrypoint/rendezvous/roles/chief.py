"""Worker 0's role: decide which workers continue and when, or that too few will come."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace

from entrypoint.cluster.spec import Member
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.comparison import Contradictions, replaced_chief
from entrypoint.rendezvous.outcome import ContradictionError
from entrypoint.rendezvous.roles.check_ins import CheckIns
from entrypoint.rendezvous.roles.circles import Circles
from entrypoint.rendezvous.roles.gathering import Gathering
from entrypoint.rendezvous.roles.session import Session
from entrypoint.rendezvous.states import ChiefState, Gathered, chief_state
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.listener import Listener, Settle, Strangers
from entrypoint.rendezvous.transport.messages import (
    GO,
    JOIN,
    READY,
    RELEASE,
    STATUS,
    WAIT,
    Message,
)
from entrypoint.rendezvous.transport.network import Port

ENDS_ALONE = (
    "the workers that differ have trained together without this one: only this one exits, and "
    "they wait for a replacement"
)


class ChiefRole:
    """The chief's actions. `loops` run as long as `decide`."""

    def __init__(self, attempt: Attempt, port: Port) -> None:
        self._attempt, self._timing, self._say = attempt, attempt.timing, attempt.terms.say
        self._check_ins, self._circles = CheckIns(attempt), Circles(attempt)
        self._gathering = Gathering(attempt, self._check_ins)
        self._confirmed: list[Session] | None = None
        """The workers that last confirmed that they are alive and agree."""
        self._is_over = False
        self._error: Exception | None = None
        strangers, token = Strangers(len(attempt.spec.members)), attempt.terms.token
        self.listener = Listener(port, strangers, token, attempt.timing, self._receive)

    def loops(self) -> list[Coroutine[None, None, None]]:
        """Return the loops that run until the decision."""
        return [self.listener.run(), *self._check_ins.loops(), self._report()]

    async def _receive(self, connection: Connection, hello: Message, settle: Settle) -> None:
        is_neighbour = hello.kind == JOIN
        receive = self._circles.neighbours.receive if is_neighbour else self._check_ins.receive
        await receive(connection, hello, settle)

    async def decide(self) -> Exception | None:
        """Return the error with which the meeting ends; None if the present workers continue."""
        while not self._is_over:
            await self._gathering.send_ahead()
            await self._note_limit()
            group = self._gathering.choose()
            self._error = await self._act(self._state(group), group or [])
        return self._error

    async def _note_limit(self) -> None:
        """Switch to the limit that runs. Tell members at once: their own may be about to end."""
        was_starting = self._attempt.limit.is_starting
        self._gathering.note_limit()
        if self._attempt.limit.is_starting and not was_starting:
            await self._tell_status()

    def _state(self, group: list[Session] | None) -> ChiefState:
        """Return the state of this worker. `group` may continue; None: no group may."""
        attempt, is_late = self._attempt, self._attempt.limit.left_seconds <= 0
        if group is None:
            gathered = Gathered.TOO_FEW
        else:
            gathered = Gathered.CONFIRMED if group == self._confirmed else Gathered.ENOUGH
        is_tried = group is None or bool(self._circles.trouble)
        return chief_state(
            attempt.disagreement(self._check_ins.is_new),
            gathered,
            asks=attempt.terms.asks,
            is_over=(is_late and is_tried) or self._losses > attempt.terms.most_losses,
        )

    @property
    def _losses(self) -> int:
        """The number of losses or broken links in a row before a ring was formed."""
        return self._circles.failures + self._gathering.losses

    async def _act(self, state: ChiefState, group: list[Session]) -> Exception | None:
        attempt = self._attempt
        if state is ChiefState.GATHERS:
            await attempt.news(self._gathering.patience())
        elif state is ChiefState.SENDS_AWAY:
            await attempt.send_away()
        elif state is ChiefState.CONFIRMS:
            self._confirmed = group if await self._are_ready(group) else None
        elif state is ChiefState.RELEASES:
            await self._release(group)
        elif state is ChiefState.LINKS:
            await self._link(group)
        else:
            error = await self._ending(state)
            self._is_over = error is not None
            return error
        return None

    async def _ending(self, state: ChiefState) -> Exception | None:
        """Return the error with which the meeting ends; None if it continues after all."""
        if state is ChiefState.CONTRADICTED:
            return await self._contradict()
        if state is ChiefState.REPLACED and self._attempt.newer:
            return self._was_replaced(self._attempt.newer)
        return self._attempt.gave_up(self._gathering.line(self._circles.trouble), self._losses)

    async def _are_ready(self, sessions: Sequence[Session]) -> bool:
        """Ask members whether they are alive and agree; return whether all confirm it."""
        ready = await asyncio.gather(
            *(session.ask(READY, self._timing.alive_seconds) for session in sessions),
        )
        for session, is_ready in zip(sessions, ready, strict=True):
            session.is_silent = session.is_silent or not is_ready
        return all(ready)

    async def _release(self, sessions: Sequence[Session]) -> None:
        """Close all ports, this worker's first, and only then let the workers go.

        The members end their connections, so that TCP's TIME-WAIT state does not occupy the chief's
        port. Members whose commands already ask check in again, and wait until this one asks, too.
        """
        attempt, seconds = self._attempt, self._timing.release_seconds
        attempt.meeting = replace(attempt.meeting, positions=self._positions(sessions))
        await self.listener.close()
        more = {"positions": list(attempt.meeting.positions)}
        starting = [session for session in sessions if not session.card.asks]
        await asyncio.gather(*(session.ask(RELEASE, seconds, more) for session in starting))
        for session in sessions:
            if session.card.asks:
                await session.send(Message(WAIT))
        await self._let_go(sessions, starting)

    async def _link(self, sessions: Sequence[Session]) -> None:
        attempt, named = self._attempt, self._positions(sessions)
        attempt.meeting = replace(attempt.meeting, positions=named)
        attempt.ring = await self._circles.link(named or attempt.terms.everyone, sessions)
        self._confirmed = None
        if attempt.ring:
            await self.listener.close()
            await self._let_go(sessions, sessions)

    async def _let_go(self, sessions: Sequence[Session], going: Sequence[Session]) -> None:
        """Let the workers go, and wait a moment until all have ended their connections."""
        self._is_over = True
        attempt = self._attempt
        await asyncio.gather(*(session.send(Message(GO)) for session in going))
        until = attempt.seconds + self._timing.release_seconds
        while any(one in sessions for one in self._check_ins.sessions.values()):
            if not await attempt.news(until - attempt.seconds):
                break

    def _positions(self, sessions: Sequence[Session]) -> tuple[int, ...]:
        """Return the places of the workers that continue; () for all of them."""
        members = self._attempt.spec.members
        if len(sessions) == len(members) - 1:
            return ()
        going = {self._attempt.me, *(session.member for session in sessions)}
        return tuple(place for place, member in enumerate(members) if member in going)

    def _was_replaced(self, newer: Member) -> ContradictionError:
        """Return the error of a chief that was replaced. It concerns no other worker."""
        attempt, found = self._attempt, Contradictions()
        found.add(attempt.card, str(attempt.me.address), replaced_chief(attempt.spec, newer))
        return ContradictionError(found.problems())

    async def _contradict(self) -> ContradictionError | None:
        """Collect problems for a moment, while workers still connect; then send them to all.

        Returns None if it turns out meanwhile that only newcomers are concerned.
        """
        attempt = self._attempt
        until = attempt.seconds + self._timing.collect_seconds
        while not attempt.has_met_all and await attempt.news(until - attempt.seconds):
            pass
        if attempt.contradictions.are_all_of(self._check_ins.is_new):
            return None
        problems, older = attempt.contradictions.problems(), self._those_who_trained()
        if older:
            self._say("WARNING", ENDS_ALONE)
        await attempt.tell(problems, older)
        return ContradictionError(problems)

    def _those_who_trained(self) -> set[str]:
        """Return the boots of differing workers of a later ring; if any, this chief is wrong."""
        own, terms = self._attempt.card.generation, self._attempt.terms
        accused = self._attempt.contradictions.accused_of(lambda card: card.generation > own)
        return accused if terms.fewer else set()

    async def _report(self) -> None:
        """Report the missing workers, here and to every member that has checked in."""
        await asyncio.sleep(self._timing.first_line_seconds)
        while not self._is_over:
            if self._is_waiting:
                self._say("INFO", self._gathering.line(self._circles.trouble))
                await self._tell_status()
            await asyncio.sleep(self._timing.line_seconds)

    @property
    def _is_waiting(self) -> bool:
        return not self._gathering.is_complete or bool(self._circles.trouble)

    async def _tell_status(self) -> None:
        """Report the missing workers, and the limit that runs, to every member with a session."""
        if not self._is_waiting:
            return
        line, is_expected = (
            self._gathering.line(self._circles.trouble),
            self._attempt.limit.is_starting,
        )
        status = Message(STATUS, {"line": line, "is_expected": is_expected})
        sessions = list(self._check_ins.sessions.values())
        await asyncio.gather(*(session.send(status) for session in sessions))
