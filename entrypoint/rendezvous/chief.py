"""The chief's part: decide when all are here, or that they never will be."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine

from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.check_ins import CheckIns
from entrypoint.rendezvous.outcome import ContradictionError, PeersMissingError, waiting_line
from entrypoint.rendezvous.transport.listener import Listener
from entrypoint.rendezvous.transport.messages import GO, PING, READY, RELEASE, STATUS, Message
from entrypoint.rendezvous.transport.strangers import Strangers


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
        """Return the error with which the gate ends, None after the release of all."""
        attempt = self._attempt
        while True:
            if attempt.contradictions:
                return await self._contradict()
            if self._check_ins.is_complete and await self._all_are_ready():
                await self._release()
                return None
            if not await attempt.news(attempt.given.timeout_seconds - attempt.seconds):
                return PeersMissingError(attempt.gave_up(self._line()))

    async def _all_are_ready(self) -> bool:
        """Ask all members whether they are alive and nothing is against it, and none other came."""
        sessions = list(self._check_ins.sessions.values())
        ready = await asyncio.gather(
            *(session.ask(READY, self._timing.alive_seconds) for session in sessions),
        )
        for session, is_ready in zip(sessions, ready, strict=True):
            session.is_silent = session.is_silent or not is_ready
        same = sessions == list(self._check_ins.sessions.values())
        return all(ready) and same and not self._attempt.contradictions

    async def _release(self) -> None:
        """Have all ports closed, the own one first, and only then let anyone go.

        The members end their connections, so that what TCP remembers of them (TIME-WAIT) is not at
        the chief's port.
        """
        self._is_decided = True
        await self.listener.close()
        sessions, seconds = list(self._check_ins.sessions.values()), self._timing.release_seconds
        await asyncio.gather(*(session.ask(RELEASE, seconds) for session in sessions))
        await asyncio.gather(*(session.send(Message(GO)) for session in sessions))
        until = self._attempt.seconds + seconds
        while self._check_ins.sessions and await self._attempt.news(until - self._attempt.seconds):
            pass

    async def _contradict(self) -> ContradictionError:
        """Wait for what else is wrong and for who else has to know, then tell all."""
        attempt = self._attempt
        until = attempt.seconds + self._timing.collect_seconds
        while not attempt.has_met_all and await attempt.news(until - attempt.seconds):
            pass
        problems = attempt.contradictions.problems()
        await attempt.tell(problems)
        return ContradictionError(problems)

    def _line(self) -> str:
        """Return the line that says who is missing."""
        count = len(self._attempt.spec.members)
        return waiting_line(self._check_ins.missing(), count, self._attempt.seconds)

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
