"""From ring to ring within one run of the command: whenever it asks, it meets the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from entrypoint.cluster.spec import Task
from entrypoint.errors import escaped
from entrypoint.log import Say
from entrypoint.rendezvous.commands.taking_in import receive_latecomers
from entrypoint.rendezvous.gate import linked
from entrypoint.rendezvous.meeting import WENT_AHEAD, Fewer, Meeting, Ring
from entrypoint.rendezvous.roles.latecomers import Note
from entrypoint.rendezvous.roll import Roll
from entrypoint.rendezvous.terms import Terms


class Seen(Protocol):
    """What this worker has heard of generations, over all runs of its command."""

    @property
    def newest(self) -> int:
        """The newest so far; 0 before any."""

    @property
    def size(self) -> int:
        """How many workers that ring had."""

    def note(self, generation: int, size: int) -> None:
        """Note another one, of so many workers."""


@dataclass(frozen=True)
class Waiting:
    """Where a wait is shown."""

    say: Say
    """Takes what is said of it."""
    prolong: Callable[[str], None]
    """Is told what is waited for whenever the time limit begins anew."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """How commands that run meet where workers are waited for (RENDEZVOUS_TIMEOUT)."""

    timeout_seconds: float
    most_losses: int
    """How often in a row somebody may be lost, or out of reach, before there is a ring."""
    waiting: Callable[[], AbstractContextManager[Waiting]]
    """Shows while it lasts that this worker waits."""
    fewer: Fewer | None = None
    """When not all workers are waited for; None: always."""


class Group:
    """The workers with whom one run of the command makes ring after ring.

    Each ring is what comes of a meeting. When it has ended, somebody was lost, or somebody is to be
    taken in: so all meet once more, with whoever is there, while their commands wait.
    """

    def __init__(
        self,
        terms: Terms,
        *,
        meeting: Meeting,
        seen: Seen,
        gate: Gate | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with the meeting before the command's start, if there was one.

        `terms.start_seconds` is how long commands may take to ask.
        """
        self._roll, self._gate, self._seen = Roll(clock), gate, seen
        self._comes_late = gate is not None and not meeting.identity
        self._went_ahead = meeting.identity == WENT_AHEAD
        if not self._comes_late:
            self._roll.note_start(meeting.positions or terms.everyone)
        limit = gate.timeout_seconds if gate else terms.start_seconds
        self._terms = replace(
            terms,
            say=_escaping(terms.say),
            token=terms.token or None,
            timeout_seconds=limit,
            fewer=gate.fewer if gate else None,
            most_losses=gate.most_losses if gate else inf,
            roll=self._roll,
            asks=True,
        )
        self._ring: Ring | None = None

    async def ring(self) -> Ring:
        """Return this worker's part of the next ring.

        Raises PeersMissingError, ContradictionError, PortTakenError, PortClosedError. Cancelled, it
        leaves nothing behind.
        """
        self._ring = None
        with self._waiting() as waiting:
            terms = self._now()
            if waiting:
                terms = replace(terms, say=_escaping(waiting.say), prolong=waiting.prolong)
                terms.say("INFO", self._begins())
            ring = await linked(terms)
        self._seen.note(ring.generation, ring.size)
        self._roll.note_ring(ring.positions)
        self._ring, self._comes_late = ring, False
        return ring

    async def receive_latecomers(self, note: Note) -> None:
        """Receive who comes while worker 0's ring trains without some; until cancelled."""
        members, ring = self._terms.spec.members, self._ring
        if not (ring and self._gate and ring.rank == 0 and len(ring.positions) < len(members)):
            return

        def await_them(tasks: Sequence[Task]) -> None:
            self._roll.note_waiting([self._terms.places[task] for task in tasks])
            note(tasks)

        terms = replace(self._now(), asks=False)
        await receive_latecomers(terms, ring.positions, await_them)

    def warn(self, line: str) -> None:
        """Say what goes wrong beside the command."""
        self._terms.say("WARNING", line)

    def _now(self) -> Terms:
        return replace(
            self._terms,
            generation=self._seen.newest,
            ring_size=self._seen.size,
            were_together=self._roll.is_starting and not self._went_ahead,
        )

    def _waiting(self) -> AbstractContextManager[Waiting | None]:
        """Return where the wait is shown; a command that has never trained only starts."""
        if self._gate and not self._roll.is_starting:
            return self._gate.waiting()
        return nullcontext()

    def _begins(self) -> str:
        if self._comes_late:
            return "others train already: asking to be taken in"
        return (
            f"the ring of generation {self._seen.newest} has ended: meeting all workers at the "
            "gate again, which come as soon as they notice, or are started again"
        )


def _escaping(say: Say) -> Say:
    return lambda level, line: say(level, escaped(line))
