"""The chief's part: decide who goes on and when, or that too few will ever be here."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Sequence
from dataclasses import replace

from entrypoint.cluster.spec import Member
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.comparison import Contradictions, replaced_chief
from entrypoint.rendezvous.outcome import ContradictionError, waiting_line
from entrypoint.rendezvous.roles.check_ins import CheckIns
from entrypoint.rendezvous.roles.going_on import chosen, held_up, patience
from entrypoint.rendezvous.roles.session import Session
from entrypoint.rendezvous.transport.listener import Listener
from entrypoint.rendezvous.transport.messages import (
    AHEAD,
    GO,
    PING,
    READY,
    RELEASE,
    STATUS,
    Message,
)
from entrypoint.rendezvous.transport.strangers import Strangers

ENDS_ALONE = (
    "those who differ have trained together, and this worker was not among them: it ends alone, "
    "and they wait for another in its place"
)


class ChiefRole:
    """What the chief does; `loops` run while `decide` does."""

    def __init__(self, attempt: Attempt, listener: socket.socket) -> None:
        self._attempt, self._timing, self._say = attempt, attempt.timing, attempt.given.say
        self._check_ins = CheckIns(attempt)
        self._is_decided = False
        strangers = Strangers(len(attempt.spec.members))
        self.listener = Listener(
            listener, strangers, attempt.given.token, attempt.timing, self._check_ins.receive
        )

    def loops(self) -> list[Coroutine[None, None, None]]:
        """Return what runs until the decision."""
        return [self.listener.run(), self._check_ins.probe(), self._report(), self._ping()]

    async def decide(self) -> Exception | None:
        """Return the error with which the gate ends, None after the release."""
        attempt = self._attempt
        while True:
            if attempt.newer:
                return self._was_replaced(attempt.newer)
            if attempt.contradictions.are_all_of(self._check_ins.is_new):
                await attempt.send_away()
                continue
            if attempt.contradictions:
                if error := await self._contradict():
                    return error
                continue
            group = chosen(attempt.given, self._check_ins.here, attempt.seconds)
            if group is not None and await self._are_ready(group) and not attempt.newer:
                await self._release(group)
                return None
            if group is None and await self._is_over():
                return attempt.gave_up(self._line())

    async def _is_over(self) -> bool:
        """Wait for news; return whether there is no time left for any."""
        attempt, given = self._attempt, self._attempt.given
        ends = [patience(given, self._check_ins.here), given.timeout_seconds]
        until = min(end for end in ends if end > attempt.seconds or end == given.timeout_seconds)
        has_news = await attempt.news(until - attempt.seconds)
        return not has_news and attempt.seconds >= given.timeout_seconds

    async def _are_ready(self, sessions: Sequence[Session]) -> bool:
        """Ask members whether they are alive and nothing is against it, and none other came."""
        ready = await asyncio.gather(
            *(session.ask(READY, self._timing.alive_seconds) for session in sessions),
        )
        for session, is_ready in zip(sessions, ready, strict=True):
            session.is_silent = session.is_silent or not is_ready
        here = self._check_ins.sessions.values()
        same = all(any(session is one for one in here) for session in sessions)
        return all(ready) and same and not self._attempt.contradictions

    async def _release(self, sessions: Sequence[Session]) -> None:
        """Have all ports closed, the own one first, and only then let anyone go.

        The members end their connections, so that what TCP remembers of them (TIME-WAIT) is not at
        the chief's port. Who is here and starts, while others go on, goes ahead by itself.
        """
        self._is_decided = True
        attempt, seconds = self._attempt, self._timing.release_seconds
        attempt.meeting = replace(attempt.meeting, positions=self._positions(sessions))
        await self.listener.close()
        all_ask = attempt.given.asks and all(session.card.asks for session in sessions)
        attempt.meeting = replace(attempt.meeting, all_ask=all_ask)
        more = {"positions": list(attempt.meeting.positions), "all_ask": all_ask}
        await asyncio.gather(*(session.ask(RELEASE, seconds, more) for session in sessions))
        await asyncio.gather(*(session.send(Message(GO)) for session in sessions))
        early = [one for one in self._check_ins.here if one not in sessions and not one.card.asks]
        await asyncio.gather(*(session.send(Message(AHEAD)) for session in early))
        until = attempt.seconds + seconds
        gone = [*sessions, *early]
        while any(one in gone for one in self._check_ins.sessions.values()):
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
        own, given = self._attempt.card.generation, self._attempt.given
        accused = self._attempt.contradictions.accused_of(lambda card: card.generation > own)
        return accused if given.fewer else set()

    def _line(self) -> str:
        """Return the line that says who is missing."""
        count = len(self._attempt.spec.members)
        line = waiting_line(self._check_ins.missing(), count, self._attempt.seconds)
        why = held_up(self._attempt.given, self._check_ins.here)
        return f"{line}; {why}" if why else line

    async def _report(self) -> None:
        """Say who is missing, here and to every member that has checked in."""
        await asyncio.sleep(self._timing.first_line_seconds)
        while not self._is_decided:
            if not self._check_ins.is_complete:
                line = self._line()
                self._say("INFO", line)
                status = Message(STATUS, {"line": line})
                sessions = list(self._check_ins.sessions.values())
                await asyncio.gather(*(session.send(status) for session in sessions))
            await asyncio.sleep(self._timing.line_seconds)

    async def _ping(self) -> None:
        """Find out who has gone silent."""
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
