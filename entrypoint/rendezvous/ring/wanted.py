"""What a ring is formed from, and what comes of it."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import Protocol

from entrypoint.cluster.spec import Member
from entrypoint.rendezvous.attempt import Given
from entrypoint.rendezvous.comparison import other_hosts, other_settings, other_versions
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.transport.messages import LARGEST_NUMBER, Message, MessageError

GENERATIONS_BEGAN = 1_767_225_600
"""2026-01-01 UTC, in seconds of `time.time`."""


class Seen(Protocol):
    """What this worker has heard of generations, over all runs of its command."""

    @property
    def newest(self) -> int:
        """The newest so far; 0 before any."""

    def note(self, generation: int) -> None:
        """Note another one."""


@dataclass(frozen=True, kw_only=True)
class Wanted(Given):
    """What a ring is formed from; `timeout_seconds` 0 is no limit."""

    meeting: str
    """The identity of the meeting at the gate; "" where there was none."""
    boot: str
    """Random, and new for each attempt."""
    seen: Seen

    @property
    def rank(self) -> int:
        """This worker's place, from 0."""
        return self.spec.members.index(self.me)

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self.spec.members)

    @property
    def left(self) -> Member:
        """The worker that dials this one."""
        return self.spec.members[self.rank - 1]

    @property
    def right(self) -> Member:
        """The worker that this one dials."""
        return self.spec.members[(self.rank + 1) % self.size]

    def card(self, kind: str) -> Message:
        """Return the message that says who this worker is."""
        card = Card.of(self.facts, self.task, self.boot, is_chief=self.rank == 0).message(kind)
        return Message(kind, {**card.fields, "meeting": self.meeting})

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
        if meeting != self.meeting:
            return (
                "is not from the same meeting at the gate: one of the two was started again since"
            )
        return ""

    def next_generation(self, newest: int) -> int:
        """Return a number for a ring, above that of any whose members are among these workers.

        The clock puts it above those of which no worker is left, too.
        """
        by_the_clock = int(time.time()) - GENERATIONS_BEGAN
        return min(max(newest + 1, self.seen.newest + 1, by_the_clock), LARGEST_NUMBER)


@dataclass(frozen=True)
class Ring:
    """What comes of it: this worker's part of the ring."""

    rank: int
    size: int
    generation: int
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
