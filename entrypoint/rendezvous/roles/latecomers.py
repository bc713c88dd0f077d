"""Worker 0's role while a ring trains without some workers: receive them when they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from math import inf

from entrypoint.cluster.spec import Task
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.outcome import with_reasons
from entrypoint.rendezvous.roles.chief import ChiefRole
from entrypoint.rendezvous.roles.session import DIALLED_BACK, Session
from entrypoint.rendezvous.transport.messages import AHEAD, STATUS, Message
from entrypoint.rendezvous.transport.network import Port

Note = Callable[[Sequence[Task]], None]
"""Called with the workers that wait to join, whenever they change."""


class LatecomersRole(ChiefRole):
    """Sends starting workers ahead, and makes asking workers wait, until it is cancelled.

    The ring then ends to let the waiting workers in, and all meet at the gate.
    """

    def __init__(
        self,
        attempt: Attempt,
        port: Port,
        absent: Collection[int],
        note: Note,
    ) -> None:
        super().__init__(attempt, port)
        self._admission = attempt.terms.suspects
        self._absent = {attempt.spec.members[place].task for place in absent}
        self._note = note
        self._noted: list[Task] = []
        self._received: set[Session] = set()
        self._troubles: dict[Task, str] = {}

    def loops(self) -> list[Coroutine[None, None, None]]:
        """Return the loops that run meanwhile. Missing workers are not probed."""
        return [self.listener.run(), self._check_ins.ping(), self._report()]

    async def decide(self) -> Exception | None:
        """Receive every worker that comes."""
        attempt = self._attempt
        while True:
            attempt.compared.clear()  # not needed here, and it would grow for days
            self._received.intersection_update(self._check_ins.sessions.values())
            if attempt.contradictions:  # training workers and other newcomers continue
                await attempt.send_away()
            for session in self._latecomers:
                if session not in self._received:
                    self._received.add(session)
                    await self._welcome(session)
            asking = [self._place(session) for session in self._latecomers if session.card.asks]
            admitted = self._admission.admitted(asking)
            waiting = [attempt.spec.members[place].task for place in admitted]
            if waiting != self._noted:  # a worker may also have gone
                self._noted = waiting
                self._note(waiting)
            pauses = filter(None, map(self._admission.pause, asking))
            await attempt.news(min(pauses, default=inf))

    def _place(self, session: Session) -> int:
        return self._attempt.spec.members.index(session.member)

    @property
    def _latecomers(self) -> list[Session]:
        return [one for one in self._check_ins.here if one.member.task in self._absent]

    async def _welcome(self, session: Session) -> None:
        name = str(session.member.task)
        self._troubles.pop(session.member.task, None)
        if session.card.asks:
            what = self._admission.why(self._place(session)) or "waits to join"
            self._say("INFO", f"{name} is back, and {what}")
            await self._tell(session)  # renews its time limit
        else:
            self._say("INFO", f"{name} is back: its command starts meanwhile")
            await session.send(Message(AHEAD, {"train": True}))

    async def _report(self) -> None:
        """Tell waiting workers why they wait, and log here which cannot be reached."""
        pause = self._timing.first_line_seconds
        while True:
            await asyncio.sleep(pause)
            pause = self._timing.line_seconds
            for session in list(self._check_ins.sessions.values()):
                await self._tell(session)
                if not session.is_verified:
                    self._warn_of(session)

    def _warn_of(self, session: Session) -> None:
        """Log why a worker cannot be dialled back, if the reason is new."""
        task, trouble = session.member.task, session.trouble
        if trouble not in (DIALLED_BACK, self._troubles.get(task)):
            self._troubles[task] = trouble
            reasons = with_reasons([(session.member, trouble)])
            self._say("WARNING", f"a worker has returned, but cannot join: {reasons}")

    async def _tell(self, session: Session) -> None:
        count, absent = len(self._attempt.spec.members), len(self._absent)
        line = f"{count - absent} of {count} workers train; {self._waits_for(session)}"
        is_expected = session in self._latecomers
        await session.send(Message(STATUS, {"line": line, "is_expected": is_expected}))

    def _waits_for(self, session: Session) -> str:
        task = session.member.task
        if not session.is_here:
            return with_reasons([(session.member, session.reason)])
        if task in self._absent:
            why = self._admission.why(self._place(session))
            return f"this one {why or 'waits to join, at the end of a call'}"
        if session.card.generation == self._attempt.terms.generation:
            return (
                f"{task} did, too, but its ring has broken, and {self._attempt.me.task} has not "
                "noticed that yet"
            )
        return f"{task} is among them: this process waits until that one is lost"
