"""Worker 0's part: decide who goes on and when, or that too few will ever be here."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace

from entrypoint.cluster.spec import Member, Task
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.comparison import Contradictions, replaced_chief
from entrypoint.rendezvous.outcome import ContradictionError, waiting_line
from entrypoint.rendezvous.roles.check_ins import CheckIns
from entrypoint.rendezvous.roles.circles import Circles
from entrypoint.rendezvous.roles.quorum import (
    are_enough,
    choose_members,
    held_up,
    patience,
    who_may_go,
)
from entrypoint.rendezvous.roles.session import Session
from entrypoint.rendezvous.states import ChiefState, Expected, SeenByChief, chief_state
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.listener import Listener, Settle
from entrypoint.rendezvous.transport.messages import (
    AHEAD,
    GO,
    JOIN,
    PING,
    READY,
    RELEASE,
    STATUS,
    WAIT,
    Message,
)
from entrypoint.rendezvous.transport.network import Port
from entrypoint.rendezvous.transport.reasons import NOT_ASKED, REFUSED
from entrypoint.rendezvous.transport.strangers import Strangers

ENDS_ALONE = (
    "the workers that differ have trained together without this one: it ends alone, and they "
    "wait for a replacement"
)


class ChiefRole:
    """What the chief does; `loops` run while `decide` does."""

    def __init__(self, attempt: Attempt, port: Port) -> None:
        self._attempt, self._timing, self._say = attempt, attempt.timing, attempt.terms.say
        self._check_ins, self._circles = CheckIns(attempt), Circles(attempt)
        self._confirmed: list[Session] | None = None
        """Those who have said last that they are alive, and nothing is against it."""
        self._ahead: dict[Task, int] = {}
        """Who was sent ahead, since its command starts, and how often."""
        self._sent: set[Session] = set()
        """Those to whom that was said."""
        self._is_over = False
        self._error: Exception | None = None
        strangers, token = Strangers(len(attempt.spec.members)), attempt.terms.token
        self.listener = Listener(port, strangers, token, attempt.timing, self._receive)

    def loops(self) -> list[Coroutine[None, None, None]]:
        """Return what runs until the decision."""
        return [self.listener.run(), self._check_ins.probe(), self._report(), self._ping()]

    async def _receive(self, connection: Connection, hello: Message, settle: Settle) -> None:
        is_neighbour = hello.kind == JOIN
        receive = self._circles.links.receive if is_neighbour else self._check_ins.receive
        await receive(connection, hello, settle)

    async def decide(self) -> Exception | None:
        """Return the error with which the meeting ends, None where those who are here go on."""
        while not self._is_over:
            await self._send_ahead()
            self._note_limit()
            terms, seconds = self._attempt.terms, self._attempt.seconds
            group = choose_members(terms, self._check_ins.here, seconds, self._ahead)
            self._error = await self._act(chief_state(self._seen(group)), group or [])
        return self._error

    async def _act(self, state: ChiefState, group: list[Session]) -> Exception | None:
        """Do what a state asks for; return an error with which the meeting ends."""
        attempt = self._attempt
        if state is ChiefState.GATHERS:
            await attempt.news(self._patience())
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
        """Return the error with which the meeting ends; None if it goes on after all."""
        if state is ChiefState.CONTRADICTED:
            return await self._contradict()
        if state is ChiefState.REPLACED and self._attempt.newer:
            return self._was_replaced(self._attempt.newer)
        return self._attempt.gave_up(self._line(), self._losses)

    def _seen(self, group: list[Session] | None) -> SeenByChief:
        attempt, found = self._attempt, self._attempt.contradictions
        return SeenByChief(
            is_replaced=attempt.newer is not None,
            contradicts=bool(found),
            is_about_newcomers=found.are_all_of(self._check_ins.is_new),
            are_enough=group is not None,
            are_confirmed=group is not None and group == self._confirmed,
            asks=attempt.terms.asks,
            is_late=attempt.time_left <= 0,
            is_vain=self._is_vain,
        )

    @property
    def _here(self) -> list[Session]:
        """Those who are here and may go on with this worker: where it asks, those who ask, too."""
        return who_may_go(self._attempt.terms, self._check_ins.here)

    @property
    def _is_vain(self) -> bool:
        """Whether those who are here were no ring too often, or for too long."""
        is_over = bool(self._circles.trouble) and self._attempt.time_left <= 0
        return is_over or self._losses > self._attempt.terms.most_losses

    @property
    def _are_starting(self) -> bool:
        return self._attempt.limit.is_starting

    @property
    def _losses(self) -> int:
        """How often in a row one was lost, or out of reach, before there was a ring."""
        again = max(self._ahead.values(), default=0)
        return self._circles.failures + max(0, again - 1)

    async def _send_ahead(self) -> None:
        """Where commands ask, have those go ahead whose commands only start: they will ask, too."""
        terms, here = self._attempt.terms, self._check_ins.here
        starting = [one for one in here if not one.card.asks]
        for session in starting if terms.asks else ():
            if session not in self._sent:
                self._sent.add(session)
                self._note_ahead(session.member.task)
                train = are_enough(terms, self._here, here)
                await session.send(Message(AHEAD, {"train": train}))

    def _note_ahead(self, task: Task) -> None:
        self._ahead[task] = self._ahead.get(task, 0) + 1
        self._attempt.limit.renew(self._attempt.now)

    def _note_limit(self) -> None:
        """Note whether all who are missing only start."""
        here = {session.member.task for session in self._here}
        missing = [one for one in self._check_ins.others if one.task not in here]
        starting = self._attempt.terms.asks and all(map(self._is_starting, missing))
        self._attempt.limit.note(self._attempt.now, is_starting=starting)

    def _is_starting(self, member: Member) -> bool:
        """Whether one has been here, and its command only starts."""
        terms = self._attempt.terms
        expected = terms.roll.expected(terms.places[member.task])
        return member.task in self._ahead or expected is Expected.STARTS

    def _patience(self) -> float:
        """Return for how many seconds to wait for news: until more, or fewer, may be decided."""
        attempt, left = self._attempt, self._attempt.time_left
        until = patience(attempt.terms, self._here, self._ahead) - attempt.seconds
        return min(left, until) if until > 0 else left

    async def _are_ready(self, sessions: Sequence[Session]) -> bool:
        """Ask members whether they are alive and nothing is against it, and none other came."""
        ready = await asyncio.gather(
            *(session.ask(READY, self._timing.alive_seconds) for session in sessions),
        )
        for session, is_ready in zip(sessions, ready, strict=True):
            session.is_silent = session.is_silent or not is_ready
        return all(ready)

    async def _release(self, sessions: Sequence[Session]) -> None:
        """Have all ports closed, the own one first, and only then let anyone go.

        The members end their connections, so that what TCP remembers of them (TIME-WAIT) is not at
        the chief's port. Those whose commands run wait for this worker's, which will ask.
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
        """Have all connect with their neighbours, and let them go if there is a ring."""
        attempt, named = self._attempt, self._positions(sessions)
        attempt.meeting = replace(attempt.meeting, positions=named)
        attempt.ring = await self._circles.link(named or attempt.terms.everyone, sessions)
        self._confirmed = None
        if attempt.ring:
            await self.listener.close()
            await self._let_go(sessions, sessions)

    async def _let_go(self, sessions: Sequence[Session], going: Sequence[Session]) -> None:
        """Let those go who are to go, and wait a moment until all have ended their connections."""
        self._is_over = True
        attempt = self._attempt
        await asyncio.gather(*(session.send(Message(GO)) for session in going))
        until = attempt.seconds + self._timing.release_seconds
        while any(one in sessions for one in self._check_ins.sessions.values()):
            if not await attempt.news(until - attempt.seconds):
                break

    def _positions(self, sessions: Sequence[Session]) -> tuple[int, ...]:
        """Return the places of those who go on; () for all of them."""
        members = self._attempt.spec.members
        if len(sessions) == len(members) - 1:
            return ()
        going = {self._attempt.me, *(session.member for session in sessions)}
        return tuple(place for place, member in enumerate(members) if member in going)

    def _was_replaced(self, newer: Member) -> ContradictionError:
        """Return the error of a chief that is none any more, which is nobody else's affair."""
        attempt, found = self._attempt, Contradictions()
        found.add(attempt.card, str(attempt.me.address), replaced_chief(attempt.spec, newer))
        return ContradictionError(found.problems())

    async def _contradict(self) -> ContradictionError | None:
        """Wait for what else is wrong and for who else has to know, then tell all.

        None if those who have come meanwhile show that it is only about new ones.
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
        """Return who differs from this chief and was in a later ring: there it is itself wrong."""
        own, terms = self._attempt.card.generation, self._attempt.terms
        accused = self._attempt.contradictions.accused_of(lambda card: card.generation > own)
        return accused if terms.fewer else set()

    def _line(self) -> str:
        count = len(self._attempt.spec.members)
        missing = [(member, self._why(member, why)) for member, why in self._missing()]
        if not missing and self._circles.trouble:
            return f"waiting for a ring of {count} workers: {self._circles.trouble}"
        line = waiting_line(missing, count, self._attempt.seconds)
        why = held_up(self._attempt.terms, self._here)
        return f"{line}; {why}" if why else line

    def _missing(self) -> list[tuple[Member, str]]:
        missing, asks = dict(self._check_ins.missing()), self._attempt.terms.asks
        here = self._check_ins.here if asks else ()
        missing |= {one.member: NOT_ASKED for one in here if not one.card.asks}
        return list(missing.items())

    def _why(self, member: Member, why: str) -> str:
        """Return why one is missing; a port that is closed has a reason where a command starts."""
        is_closed = REFUSED in why or not self._check_ins.was_probed(member)
        return NOT_ASKED if self._is_starting(member) and is_closed else why

    async def _report(self) -> None:
        """Say who is missing, here and to every member that has checked in."""
        await asyncio.sleep(self._timing.first_line_seconds)
        while not self._is_over:
            if len(self._here) < len(self._check_ins.others) or self._circles.trouble:
                line = self._line()
                self._say("INFO", line)
                status = Message(STATUS, {"line": line, "is_expected": self._are_starting})
                sessions = list(self._check_ins.sessions.values())
                await asyncio.gather(*(session.send(status) for session in sessions))
            await asyncio.sleep(self._timing.line_seconds)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._timing.ping_seconds)
            quiet = [
                session
                for session in self._check_ins.sessions.values()
                if session.silence > self._timing.ping_seconds / 2
            ]
            for session in quiet:
                session.is_silent |= session.silence > self._timing.silent_seconds
            seconds = self._timing.alive_seconds
            await asyncio.gather(*(session.ask(PING, seconds) for session in quiet))
