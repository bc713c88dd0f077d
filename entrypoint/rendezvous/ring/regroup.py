"""From ring to ring within one run of the command: who asks again meets the others again first."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from entrypoint.errors import escaped
from entrypoint.rendezvous.attempt import Given, Say
from entrypoint.rendezvous.gate import released
from entrypoint.rendezvous.outcome import BackAtTheGateError, PeersMissingError
from entrypoint.rendezvous.ring.formation import form
from entrypoint.rendezvous.ring.wanted import Ring, Seen, Wanted
from entrypoint.rendezvous.transport.timing import Timing


@dataclass(frozen=True, kw_only=True)
class Gate:
    """How a worker whose command runs passes the gate."""

    timeout_seconds: float
    most_losses: int
    """How often in a row somebody may be lost between the gate and the ring."""
    waiting: Callable[[], AbstractContextManager[Say]]
    """Shows while it lasts that this worker waits; gives what says who is missing."""
    timing: Timing


class Group:
    """The workers with whom one run of the command makes ring after ring.

    All who are in a ring were released at the gate together, one process for each worker. A meeting
    there is good for one ring: when that has ended, somebody was lost, and whoever comes in place
    of the lost one was not at that meeting. So the others pass the gate with it once more, here,
    while their commands wait.
    """

    def __init__(self, given: Given, *, meeting: str, seen: Seen, gate: Gate | None) -> None:
        """Begin with the meeting before the command's start; without a gate there is no other.

        `given.timeout_seconds` is how long a ring may take to be formed, 0 for no limit.
        """
        self._given = replace(given, say=_escaping(given.say), token=given.token or None)
        self._meeting, self._seen, self._gate = meeting, seen, gate
        self._is_used_up = False
        self._losses = 0

    async def ring(self) -> Ring:
        """Return this worker's part of the next ring.

        Raises PeersMissingError, ContradictionError, PortTakenError, PortClosedError. Cancelled, it
        leaves nothing behind.
        """
        while True:
            try:
                ring = await self._next()
            except BackAtTheGateError as error:
                self._count_loss(error)
            else:
                self._is_used_up, self._losses = True, 0
                return ring

    async def _next(self) -> Ring:
        """Return a ring of those who were at the last meeting, or are at one now."""
        if not self._gate or not self._is_used_up:
            return await self._form(self._given)
        with self._gate.waiting() as say:
            given = replace(self._given, say=_escaping(say))
            given.say("INFO", self._begins())
            at_gate = replace(
                given,
                timeout_seconds=self._gate.timeout_seconds,
                timing=self._gate.timing,
                generation=self._seen.newest,
            )
            self._meeting, self._is_used_up = await released(at_gate), False
            return await self._form(given)

    async def _form(self, given: Given) -> Ring:
        """Return the ring of the last meeting."""
        boot = secrets.token_hex(8)
        return await form(Wanted(**vars(given), meeting=self._meeting, boot=boot, seen=self._seen))

    def _begins(self) -> str:
        """Return the line that begins a wait at the gate."""
        if self._losses:
            return "meeting all workers at the gate again, before another attempt at a ring"
        return (
            f"the ring of generation {self._seen.newest} has ended: meeting all workers at the "
            "gate again, which come as soon as they notice, or are started again"
        )

    def _count_loss(self, error: BackAtTheGateError) -> None:
        """Have the next attempt begin at the gate; raise PeersMissingError if it was the last."""
        if not self._gate:
            raise error
        self._losses, self._is_used_up = self._losses + 1, True
        if self._losses > self._gate.most_losses:
            raise PeersMissingError(
                f"gave up after {self._losses} meetings at the gate without a ring: {error}"
            )
        self._given.say("WARNING", f"{error}; going there, too")


def _escaping(say: Say) -> Say:
    """Return what says lines in which others have a say."""
    return lambda level, line: say(level, escaped(line))
