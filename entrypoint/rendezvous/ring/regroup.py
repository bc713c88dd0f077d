"""From ring to ring within one run of the command: who asks again meets the others again first."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from entrypoint.cluster.spec import Task
from entrypoint.errors import escaped
from entrypoint.rendezvous.attempt import Given, Say
from entrypoint.rendezvous.gate import released
from entrypoint.rendezvous.meeting import Fewer, Meeting
from entrypoint.rendezvous.outcome import BackAtTheGateError, PeersMissingError
from entrypoint.rendezvous.ring.formation import form
from entrypoint.rendezvous.ring.left_out import LeftOut
from entrypoint.rendezvous.ring.taking_in import receive_latecomers
from entrypoint.rendezvous.ring.wanted import Ring, Seen, Wanted
from entrypoint.rendezvous.roles.latecomers import Note
from entrypoint.rendezvous.transport.timing import Timing


@dataclass(frozen=True)
class Waiting:
    """Where a wait is shown."""

    say: Say
    """Takes what is said of it."""
    prolong: Callable[[str], None]
    """Is told what is waited for whenever the time limit begins anew."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """How a worker whose command runs passes the gate."""

    timeout_seconds: float
    most_losses: int
    """How often in a row somebody may be lost between the gate and the ring."""
    waiting: Callable[[], AbstractContextManager[Waiting]]
    """Shows while it lasts that this worker waits."""
    timing: Timing
    fewer: Fewer | None = None
    """When not all workers are waited for; None: always."""


class LostSinceError(PeersMissingError):
    """One whose command had asked has not come to the ring after all."""


class Group:
    """The workers with whom one run of the command makes ring after ring.

    All who are in a ring were released at the gate together, one process for each worker. A meeting
    there is good for one ring: when that has ended, somebody was lost, and whoever comes in place
    of the lost one was not at that meeting. So the others pass the gate once more, with it or
    without, here, while their commands wait.
    """

    def __init__(self, given: Given, *, meeting: Meeting, seen: Seen, gate: Gate | None) -> None:
        """Begin with the meeting before the command's start; without a gate there is no other.

        Where others trained already when this worker started, there was none yet.

        `given.timeout_seconds` is how long a ring may take to be formed, 0 for no limit.
        """
        self._given = replace(given, say=_escaping(given.say), token=given.token or None)
        self._meeting, self._seen, self._gate = meeting, seen, gate
        self._is_used_up = self._comes_late = gate is not None and not meeting.identity
        self._losses = 0
        self._ring: Ring | None = None
        self._absent: frozenset[Task] = frozenset()
        """Who was not in the last ring."""
        self._awaited: frozenset[Task] = frozenset()
        """Who of them is to be in the next one."""
        self._left_out = LeftOut()

    async def ring(self) -> Ring:
        """Return this worker's part of the next ring.

        Raises PeersMissingError, ContradictionError, PortTakenError, PortClosedError. Cancelled, it
        leaves nothing behind.
        """
        everyone = set(range(len(self._given.spec.members)))
        while True:
            self._ring = None
            try:
                ring = await self._next()
            except BackAtTheGateError as error:
                self._count_loss(error, "going there, too")
            except LostSinceError as error:
                self._count_loss(error, "meeting the others again")
            else:
                self._is_used_up, self._losses, self._comes_late = True, 0, False
                self._ring, self._awaited = ring, frozenset()
                self._absent = self._tasks(everyone.difference(ring.positions))
                self._left_out.note_ring(ring.positions)
                return ring

    async def receive_latecomers(self, note: Note) -> None:
        """Receive who comes while worker 0's ring trains without some; until cancelled."""
        members, ring, gate = self._given.spec.members, self._ring, self._gate
        if not (ring and gate and ring.rank == 0 and len(ring.positions) < len(members)):
            return

        def await_them(tasks: Sequence[Task]) -> None:
            self._awaited = frozenset(tasks)
            note(tasks)

        given = replace(
            self._given,
            timeout_seconds=gate.timeout_seconds,
            timing=gate.timing,
            generation=self._seen.newest,
            ring_size=self._seen.size,
            fewer=gate.fewer,
        )
        await receive_latecomers(given, ring.positions, await_them, self._left_out)

    def warn(self, line: str) -> None:
        """Say what goes wrong beside the command."""
        self._given.say("WARNING", line)

    async def _next(self) -> Ring:
        """Return a ring of those who were at the last meeting, or are at one now."""
        if not self._gate or not self._is_used_up:
            return await self._form(self._given)
        with self._gate.waiting() as waiting:
            given = replace(self._given, say=_escaping(waiting.say), prolong=waiting.prolong)
            given.say("INFO", self._begins())
            at_gate = replace(
                given,
                timeout_seconds=self._gate.timeout_seconds,
                timing=self._gate.timing,
                generation=self._seen.newest,
                ring_size=self._seen.size,
                asks=True,
                fewer=self._gate.fewer,
                awaited=self._awaited,
                missing=self._absent - self._awaited,
                left_out=self._tasks(self._left_out.places) - self._awaited,
                only_last_ring=self._left_out.only_last_ring,
            )
            self._meeting, self._is_used_up = await released(at_gate), False
            self._note_meeting()
            if not (self._gate.fewer and self._meeting.all_ask):
                return await self._form(given)
            return await self._form_soon(given)

    def _note_meeting(self) -> None:
        """Note who was at the gate; worker 0 says who is left out, and why."""
        left_out = self._left_out.note_meeting(self._met())
        for place in left_out if self._given.me == self._given.spec.chief else ():
            self.warn(f"{self._given.spec.members[place].task} {self._left_out.why(place)}")

    def _met(self) -> Sequence[int]:
        """Return whose places the last meeting was."""
        return self._meeting.positions or range(len(self._given.spec.members))

    def _tasks(self, places: Collection[int]) -> frozenset[Task]:
        """Return the workers at these places of the list."""
        return frozenset(self._given.spec.members[place].task for place in places)

    async def _form_soon(self, given: Given) -> Ring:
        """Return a ring of those whose commands ask; one that does not come was lost since."""
        soon = given.timing.silent_seconds
        try:
            return await self._form(replace(given, timeout_seconds=soon))
        except PeersMissingError as error:
            self._left_out.note_failure(self._met())
            if isinstance(error, BackAtTheGateError):
                raise
            raise LostSinceError(str(error)) from None

    async def _form(self, given: Given) -> Ring:
        """Return the ring of the last meeting."""
        boot = secrets.token_hex(8)
        return await form(Wanted(**vars(given), meeting=self._meeting, boot=boot, seen=self._seen))

    def _begins(self) -> str:
        """Return the line that begins a wait at the gate."""
        if self._comes_late:
            return "others train already: asking to be taken in"
        if self._losses:
            return "meeting all workers at the gate again, before another attempt at a ring"
        return (
            f"the ring of generation {self._seen.newest} has ended: meeting all workers at the "
            "gate again, which come as soon as they notice, or are started again"
        )

    def _count_loss(self, error: PeersMissingError, what_now: str) -> None:
        """Have the next attempt begin at the gate; raise PeersMissingError if it was the last."""
        if not self._gate:
            raise error
        self._losses, self._is_used_up, self._comes_late = self._losses + 1, True, False
        if self._losses > self._gate.most_losses:
            raise PeersMissingError(
                f"gave up after {self._losses} meetings at the gate without a ring: {error}"
            )
        self._given.say("WARNING", f"{error}; {what_now}")


def _escaping(say: Say) -> Say:
    """Return what says lines in which others have a say."""
    return lambda level, line: say(level, escaped(line))
