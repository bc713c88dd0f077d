"""Forms the rings of one run of the command. The workers meet each time the command asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from entrypoint.cluster.spec import Task
from entrypoint.log import DEBUG, Say, shared_level
from entrypoint.network.link import in_a_line
from entrypoint.network.protocol import AT_A_START
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.gate import linked, meet
from entrypoint.rendezvous.generations import Generations
from entrypoint.rendezvous.outcome import (
    WENT_AHEAD,
    Meeting,
    PeersMissingError,
    PortClosedError,
    PortTakenError,
    Ring,
)
from entrypoint.rendezvous.ring_measurement import measured_links
from entrypoint.rendezvous.roles.latecomers import LatecomersRole, Note
from entrypoint.rendezvous.suspects import Suspects
from entrypoint.rendezvous.terms import Terms
from entrypoint.rendezvous.transport.network import Port


@dataclass(frozen=True)
class Waiting:
    """The functions that show a wait."""

    say: Say
    """Logs a line about the wait."""
    prolong: Callable[[str], None]
    """Called with the reason of the wait whenever the time limit is renewed."""


class Group:
    """The workers with which one run of the command forms ring after ring.

    Each ring results from a meeting. It ends when a worker is lost, or when a worker is to rejoin.
    Then all present workers meet again, while their commands wait.
    """

    def __init__(
        self,
        terms: Terms,
        *,
        meeting: Meeting,
        seen: Generations,
        waiting: Callable[[], AbstractContextManager[Waiting]] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Assign the terms and the results of earlier meetings.

        `meeting` is the result of the gate. `waiting` is a context that shows a wait at the gate.
        None: there is no gate, and the time limit of a meeting is `terms.start_seconds`.
        """
        self._suspects, self._seen, self._at_gate = Suspects(clock), seen, waiting
        self._comes_late = waiting is not None and not meeting.identity
        self._went_ahead = meeting.identity == WENT_AHEAD
        if not self._comes_late:
            self._suspects.note_start(meeting.positions or terms.everyone)
        limit = terms.timeout_seconds if waiting else terms.start_seconds
        self._terms = replace(terms, timeout_seconds=limit, suspects=self._suspects, asks=True)
        self._ring: Ring | None = None
        self._is_measured = False

    async def ring(self) -> Ring:
        """Return this worker's part of the next ring.

        Raises PeersMissingError, ContradictionError, PortTakenError, PortClosedError. If it is
        cancelled, it leaves nothing behind.
        """
        self._drop()
        with self._waiting() as waiting:
            terms = self._now()
            if waiting:
                terms = replace(terms, say=waiting.say, prolong=waiting.prolong)
                terms.say("INFO", self._begins())
            ring = await linked(terms)
        self._seen.note(ring.generation, ring.size)
        self._suspects.note_ring(ring.positions)
        self._ring, self._comes_late = ring, False
        return ring

    def _drop(self) -> None:
        """Forget the current ring."""
        for connection in (self._ring and self._ring.probes) or ():
            connection.close()
        self._ring = None

    async def measure_network(self) -> None:
        """Measure and log the network of the first ring, while the command starts.

        Later rings are not measured, so that their workers train again as soon as possible.
        """
        ring, terms = self._ring, self._terms
        if ring is None:
            return
        self._is_measured = True
        if ring.probes is None:
            return
        await asyncio.sleep(terms.timing.measure_seconds)
        try:
            links = await measured_links(ring, ring.probes, terms.spec.members, AT_A_START)
        except PeersMissingError as error:
            terms.say(DEBUG, f"the network was not measured: {error}")
            return
        terms.note_network(links)
        terms.say(shared_level(is_chief=ring.rank == 0), f"network: {in_a_line(links)}")

    async def receive_latecomers(self, note: Note) -> None:
        """Receive workers that come while worker 0's ring trains without them, until cancelled."""
        members, ring = self._terms.spec.members, self._ring
        if not (ring and self._at_gate and ring.rank == 0 and len(ring.positions) < len(members)):
            return

        def await_them(tasks: Sequence[Task]) -> None:
            self._suspects.note_waiting([self._terms.places[task] for task in tasks])
            note(tasks)

        absent = set(self._terms.everyone).difference(ring.positions)
        terms = replace(self._now(), asks=False)
        trouble = ""

        def lead(attempt: Attempt, port: Port) -> LatecomersRole:
            nonlocal trouble
            if trouble:
                terms.say("INFO", "other workers can join again")
            trouble = ""
            return LatecomersRole(attempt, port, absent, await_them)

        while True:  # a problem with this worker's port may be temporary
            try:
                await meet(terms, lead)
            except (PortTakenError, PortClosedError) as error:
                if not trouble:
                    trouble = _in_a_line(error)
                    self.warn(f"no other worker can join at present: {trouble}")
            await asyncio.sleep(terms.timing.line_seconds)

    def warn(self, line: str) -> None:
        """Log a problem that does not concern the command."""
        self._terms.say("WARNING", line)

    def _now(self) -> Terms:
        return replace(
            self._terms,
            generation=self._seen.newest,
            ring_size=self._seen.size,
            were_together=self._suspects.is_starting and not self._went_ahead,
            measures=not self._is_measured,
        )

    def _waiting(self) -> AbstractContextManager[Waiting | None]:
        """Show the wait, unless there was no ring yet: then the command is only starting."""
        if self._at_gate and not self._suspects.is_starting:
            return self._at_gate()
        return nullcontext()

    def _begins(self) -> str:
        if self._comes_late:
            return "the others train already: asking to join"
        return (
            f"the ring of generation {self._seen.newest} has ended: meeting all workers at the "
            "gate again. They come when they notice it, or restart"
        )


def _in_a_line(error: PortTakenError | PortClosedError) -> str:
    if isinstance(error, PortTakenError):
        return str(error)
    return "; ".join(f"{one.name} ({one.received}): {one.advice}" for one in error.problems)
