"""Worker 0's part in forming a ring: it names each worker's neighbours, and collects failures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.outcome import Ring, no_ring
from entrypoint.rendezvous.roles.links import Circle
from entrypoint.rendezvous.roles.neighbours import Neighbours
from entrypoint.rendezvous.roles.session import Session
from entrypoint.rendezvous.transport.messages import (
    AGAIN,
    LARGEST_NUMBER,
    LINK,
    LONGEST_TEXT,
    Message,
)
from entrypoint.rendezvous.transport.reasons import SILENT, PeerError

GENERATIONS_BEGAN = 1_767_225_600
"""2026-01-01 UTC, in seconds of `time.time`."""


class Circles:
    """Worker 0's attempts to form a ring in one meeting."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self.neighbours = Neighbours(attempt)
        self.failures = 0
        """The number of failed attempts."""
        self.trouble = ""
        """Why the last attempt failed."""
        self._last = 0

    async def link(self, positions: tuple[int, ...], sessions: Sequence[Session]) -> Ring | None:
        """Tell all workers to connect with their neighbours; return the ring, None on failure."""
        attempt, seconds = self._attempt, self._attempt.timing.link_seconds
        self._last = self._next_generation(sessions)
        measures = attempt.terms.measures
        circle = Circle(attempt.meeting.identity, self._last, positions, measures)
        self._note_meeting(positions)
        named = attempt.meeting.positions  # an empty list means all of them: lists may be long
        wanted = {"generation": self._last, "positions": list(named), "measures": measures}
        patient = seconds + attempt.timing.alive_seconds
        asking = [asyncio.create_task(one.ask(LINK, patient, wanted)) for one in sessions]
        own = await self.neighbours.connect(circle, seconds)
        answers = await asyncio.gather(*asking)
        troubles = {str(attempt.me.task): own} if own else {}
        for session, answer in zip(sessions, answers, strict=True):
            if missing := _missing(answer):
                troubles[str(session.member.task)] = missing
        if not troubles:
            return self.neighbours.hand_over()
        await self._try_again(positions, sessions, troubles)
        return None

    async def _try_again(
        self, positions: tuple[int, ...], sessions: Sequence[Session], troubles: dict[str, str]
    ) -> None:
        """Tell all workers to give up their connections; note which could not connect."""
        attempt = self._attempt
        self.neighbours.drop()
        await asyncio.gather(*(session.send(Message(AGAIN)) for session in sessions))
        told = no_ring(troubles)  # bounded: each member has to read it in a STATUS
        if told != self.trouble:
            attempt.terms.say("WARNING", f"no ring: {told}; meeting the others again")
        self.trouble = told
        self.failures += 1
        attempt.terms.suspects.note_failure(positions)
        await asyncio.sleep(attempt.timing.redial_seconds)

    def _note_meeting(self, positions: tuple[int, ...]) -> None:
        terms = self._attempt.terms
        for place in terms.suspects.note_meeting(positions):
            task = terms.spec.members[place].task
            terms.say("WARNING", f"{task} {terms.suspects.why(place)}")

    def _next_generation(self, sessions: Sequence[Session]) -> int:
        """Return a generation for the next ring, above those of all these workers' rings.

        The clock also puts it above rings of which no worker is left. A wrong clock uses up at most
        half of the numbers.
        """
        own = self._attempt.terms.generation
        newest = max([own, self._last, *(session.card.generation for session in sessions)])
        by_the_clock = min(int(time.time()) - GENERATIONS_BEGAN, LARGEST_NUMBER // 2)
        return min(max(newest + 1, by_the_clock), LARGEST_NUMBER)


def _missing(answer: Message | None) -> str:
    """Return the problem of a member's links, as a predicate; "" if it has both."""
    if answer is None:
        return SILENT
    try:
        missing = answer.text("missing", LONGEST_TEXT)
    except PeerError as error:
        return str(error)
    return f"cannot reach {missing}" if missing else ""
