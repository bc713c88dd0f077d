"""How far one attempt to form a ring has come; what its two sides share."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from entrypoint.cluster.spec import Member
from entrypoint.errors import escaped, shortened
from entrypoint.rendezvous.outcome import with_reasons
from entrypoint.rendezvous.ring.wanted import Wanted, check_newer
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.messages import LARGEST_NUMBER, LONGEST_TEXT, MessageError

NOT_CONNECTED = "has not connected yet: its command has not asked for its neighbours, or has ended"


@dataclass(frozen=True)
class Round:
    """What goes from worker 0 to the right, over all workers, while the ring is not closed."""

    number: int
    """Which of worker 0's rounds this is."""
    newest: int
    """The newest generation of all workers on the way so far."""


@dataclass(frozen=True)
class Commit:
    """What follows a round that has come back: the ring is closed, and this is its generation."""

    number: int
    generation: int


class State:
    """Both connections, as far as they are there, and what goes round on them.

    Attributes:
        round: the newest, which the right neighbour has to get.
        commit: the ring's, once it is closed.
        has_returned: whether the commit has gone all the way round; only worker 0 knows.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.is_first = wanted.rank == 0
        self.left: Connection | None = None
        self.right: Connection | None = None
        self.left_reason, self.right_reason = NOT_CONNECTED, ""
        self.left_says = self.right_says = ""
        """Whom those further away miss, or missed when they were last heard."""
        self.round: Round | None = None
        self.commit: Commit | None = None
        self.has_returned = False
        # By chance, so that none of an attempt before is taken for one of this.
        self._rounds = secrets.randbelow(LARGEST_NUMBER // 2)
        self._changed, self._left_gone = asyncio.Event(), asyncio.Event()

    def changed(self) -> None:
        """Wake the one that waits for news."""
        self._changed.set()

    async def news(self, seconds: float) -> None:
        """Wait until something has changed, or for so long."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    def begin_round(self) -> None:
        """Begin anew, as worker 0 does whenever it has another right neighbour."""
        self._rounds += 1
        self.commit, self.has_returned = None, False
        self.round = Round(self._rounds, self.wanted.seen.newest)

    def take_round(self, number: int, newest: int) -> None:
        """Take a round that the left neighbour has passed on."""
        newest = max(newest, self.wanted.seen.newest)
        if not self.is_first:
            self.round = Round(number, newest)
        elif self.round and self.round.number == number and not self.commit:
            self.commit = Commit(number, self.wanted.next_generation(newest))
            self.wanted.seen.note(self.commit.generation, self.wanted.size)
        self.changed()

    def take_commit(self, number: int, generation: int) -> None:
        """Take a commit that the left neighbour has passed on; raise MessageError.

        It has to follow its round on the same connection, and to be newer than all rings before.
        """
        commit = Commit(number, generation)
        if self.is_first:
            if commit != self.commit:
                raise MessageError
            self.has_returned = True
        else:
            if self.round is None or self.round.number != number:
                raise MessageError
            self.wanted.seen.note(check_newer(generation, self.wanted.seen), self.wanted.size)
            self.commit = commit
        self.changed()

    def take_left(self, connection: Connection) -> asyncio.Event:
        """Take a left neighbour, in place of one that was there: it has connected again.

        The event is set once it has no place here any more.
        """
        self.break_off()
        self.left, self._left_gone = connection, asyncio.Event()
        self.changed()
        return self._left_gone

    def lose_left(self, connection: Connection, reason: str) -> None:
        """Note that a left neighbour has gone, unless another has taken its place."""
        if self.left is connection:
            self._forget_left()
            self.left_reason = reason
            self.changed()

    def hear_left(self, missing: str) -> None:
        """Note whom the left neighbour says to be missing; the right one hears of a change at once.

        So do all up to the one who dials in vain, and dials again then. It goes no further: to that
        one's right there is nobody yet.
        """
        if missing != self.left_says:
            self.left_says = missing
            self.changed()

    def refuse_left(self, reason: str) -> None:
        """Note why one who has come is not the left neighbour."""
        if not self.left:
            self.left_reason = reason

    def break_off(self) -> None:
        """Give up a commit that cannot be passed on; the left neighbour sees its connection end."""
        if self.left:
            self.left.hang_up()
        self._forget_left()

    def _forget_left(self) -> None:
        """Forget what came from the left neighbour."""
        self.left = None
        self._left_gone.set()
        if not self.is_first:
            self.round = self.commit = None

    def missing(self) -> list[tuple[Member, str]]:
        """Return which neighbours are not there, and why."""
        wanted = self.wanted
        missing = {} if self.left else {wanted.left: self.left_reason}
        if not self.right:
            missing[wanted.right] = self.right_reason or "is being dialled"
        return list(missing.items())

    def told_right(self) -> str:
        """Return whom the right neighbour is told to be missing."""
        missing = [] if self.left else [(self.wanted.left, self.left_reason)]
        return _bounded(with_reasons(missing) or self.left_says)

    def told_left(self) -> str:
        """Return whom the left neighbour is told to be missing; who dials knows the reason best."""
        missing = [] if self.right else [(self.wanted.right, self.right_reason or NOT_CONNECTED)]
        return _bounded(with_reasons(missing) or self.right_says)

    def line(self, seconds: float) -> str:
        """Return the line that says who is missing."""
        missing, said = with_reasons(self.missing()), self.right_says or self.left_says
        begins = f"waiting for {seconds:.0f} s for a ring of {self.wanted.size} workers"
        if missing and said:
            return f"{begins}: {missing} (heard from others before: {said})"
        return f"{begins}: {missing or said or 'both neighbours are here, the others not yet'}"


def _bounded(text: str) -> str:
    """Return a text that fits into a message."""
    return shortened(escaped(text), LONGEST_TEXT)
