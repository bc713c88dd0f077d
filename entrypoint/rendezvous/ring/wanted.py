"""What a ring is formed from, and what comes of it."""

from __future__ import annotations

import functools
import socket
import time
from dataclasses import dataclass
from typing import Protocol

from entrypoint.cluster.spec import Member
from entrypoint.rendezvous.attempt import Given
from entrypoint.rendezvous.comparison import other_hosts, other_settings, other_versions
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.meeting import Meeting
from entrypoint.rendezvous.transport.messages import LARGEST_NUMBER, Message, MessageError

GENERATIONS_BEGAN = 1_767_225_600
"""2026-01-01 UTC, in seconds of `time.time`."""


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


@dataclass(frozen=True, kw_only=True)
class Wanted(Given):
    """What a ring is formed from; `timeout_seconds` 0 is no limit."""

    meeting: Meeting
    """At the gate: whose workers are the ring's."""
    boot: str
    """Random, and new for each attempt."""
    seen: Seen

    @functools.cached_property
    def positions(self) -> tuple[int, ...]:
        """Which of the list's workers are in the ring: their places there, ascending."""
        return self.meeting.positions or tuple(range(len(self.spec.members)))

    @functools.cached_property
    def rank(self) -> int:
        """This worker's place in the ring, from 0."""
        return self.positions.index(self.spec.members.index(self.me))

    @property
    def size(self) -> int:
        """The number of workers in the ring."""
        return len(self.positions)

    @property
    def left(self) -> Member:
        """The worker that dials this one."""
        return self._at(self.rank - 1)

    @property
    def right(self) -> Member:
        """The worker that this one dials."""
        return self._at((self.rank + 1) % self.size)

    def _at(self, rank: int) -> Member:
        """Return the worker at a place in the ring."""
        return self.spec.members[self.positions[rank]]

    def card(self, kind: str) -> Message:
        """Return the message that says who this worker is."""
        card = Card.of(self.facts, self.task, self.boot, is_chief=self.rank == 0).message(kind)
        return Message(kind, {**card.fields, "meeting": self.meeting.identity})

    def refusal(self, message: Message, expected: Member) -> str:
        """Return why the one who sent this card is not the neighbour; "" if it is.

        Raises MessageError.
        """
        theirs, meeting = Card.read(message), message.text("meeting")
        mine = Card.of(self.facts, self.task, self.boot, is_chief=self.rank == 0)
        found = [*other_versions(theirs, mine, self.me), *other_settings(theirs, mine, self.me)]
        if theirs.hosts != mine.hosts:
            found.insert(0, other_hosts("a list that differs", "the same list", self.me))
        for difference in found:
            return (
                f"has another {difference.what}: {difference.received}, not {difference.accepted}"
            )
        if theirs.task != expected.task:
            return f"is {theirs.task}, where {expected.task} should be"
        if meeting != self.meeting.identity:
            return (
                "is not from the same meeting at the gate: one of the two was started again since"
            )
        return ""

    def next_generation(self, newest: int) -> int:
        """Return a number for a ring, above that of any whose members are among these workers.

        The clock puts it above those of which no worker is left, too. One that runs wrong leaves
        room for as many rings again.
        """
        by_the_clock = min(int(time.time()) - GENERATIONS_BEGAN, LARGEST_NUMBER // 2)
        return min(max(newest + 1, self.seen.newest + 1, by_the_clock), LARGEST_NUMBER)


@dataclass(frozen=True)
class Ring:
    """What comes of it: this worker's part of the ring."""

    rank: int
    size: int
    generation: int
    positions: tuple[int, ...]
    """Whose ring it is: places in the list of all workers, ascending."""
    left: socket.socket
    right: socket.socket

    def close(self) -> None:
        """Close the own copies of both."""
        self.left.close()
        self.right.close()


def check_newer(generation: int, seen: Seen) -> int:
    """Return a generation that is newer than all before; raise MessageError for another."""
    if generation <= seen.newest:
        raise MessageError
    return generation
