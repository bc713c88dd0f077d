"""The state of one meeting on one worker, shared by all parts of the meeting."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from math import inf

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import Member, Task
from entrypoint.errors import Problem
from entrypoint.rendezvous.comparison import Contradictions, in_a_line
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.outcome import Meeting, NobodyCameError, PeersMissingError, Ring
from entrypoint.rendezvous.states import Disagreement
from entrypoint.rendezvous.terms import Limit, Terms
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.messages import CARD, Message, contradiction
from entrypoint.rendezvous.transport.reasons import PeerError
from entrypoint.rendezvous.transport.timing import PASSING_SECONDS

FAREWELL_SECONDS = 1.0
"""Time for the other workers to read why the gate ends."""


class Attempt:
    """The state of a meeting on this worker, in either role."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.timing, self.spec, self.me = terms, terms.timing, terms.spec, terms.me
        self.is_chief = self.me == self.spec.chief
        boot = secrets.token_hex(8)
        self.card = Card.of(
            terms.facts,
            terms.task,
            boot,
            is_chief=self.is_chief,
            generation=terms.generation,
            ring_size=terms.ring_size,
            asks=terms.asks,
        )
        self._started = self.now
        self.contradictions = Contradictions()
        self.meeting = Meeting(boot if self.is_chief else "")
        """The meeting, with the chief's ID for it once this worker knows it."""
        self.is_ahead = False
        """Whether this worker goes ahead of the others, and will ask for them later."""
        self.ring: Ring | None = None
        """The resulting ring, if commands asked for one."""
        self.limit = Limit(terms, asyncio.get_running_loop().time)
        self.trouble = ""
        """Why this worker has not checked in yet, or which worker it has checked in with."""
        self.newer: Member | None = None
        """A worker that was in a later ring than this chief, with another process as chief."""
        self.compared: set[str] = set()
        """The boots of the workers that were compared with this one."""
        self._wrong: dict[Address, tuple[float, float]] = {}
        """Member's address -> the times when another worker first and last answered there."""
        self._known: dict[Connection, Card] = {}
        self.has_met_any = False
        """Whether this worker has been connected to any other worker."""
        self._sent_away: set[str] = set()
        """The boots of the workers that were sent away last. They may return before they end."""
        self._changed = asyncio.Event()

    @property
    def seconds(self) -> float:
        """Seconds since the meeting began."""
        return self.now - self._started

    @property
    def now(self) -> float:
        """The time of the event loop's clock."""
        return asyncio.get_running_loop().time()

    @property
    def place(self) -> int:
        """This worker's place in the list of all workers, from 0."""
        return self.terms.places[self.me.task]

    def member(self, task: Task) -> Member | None:
        """Return the member of the own list that has this task; None if there is none."""
        place = self.terms.places.get(task)
        return None if place is None else self.spec.members[place]

    def disagreement(self, is_new: Callable[[Card], bool]) -> Disagreement:
        """Return the kind of disagreement; `is_new` tells whether a worker is a newcomer."""
        if self.newer:
            return Disagreement.WITH_SUCCESSOR
        if not self.contradictions:
            return Disagreement.NONE
        if self.contradictions.are_all_of(is_new):
            return Disagreement.WITH_NEWCOMERS
        return Disagreement.OF_WORKERS

    def is_new(self, card: Card) -> bool:
        """Whether a worker was not in this worker's newest ring, and may be left out."""
        return bool(self.terms.fewer) and card.generation < self.terms.generation

    def refuse_other_job(self, card: Card) -> None:
        """Raise PeerError if a worker belongs to another job of the scheduler.

        Jobs that share their machines may use the same port, one after the other.
        """
        theirs, own = card.job, self.card.job
        if theirs and own and theirs != own:
            raise PeerError(f"answered by a worker of another program, {theirs}; this is {own}")

    def refuse_passing(self, card: Card, expected: Member) -> None:
        """Raise PeerError if another worker answers at a member's address, but not for long yet.

        When two containers restart, one may get the other's old address, which other workers still
        dial. So a worker counts as wrong only if it answers there repeatedly, for some time, and
        the right worker does not answer meanwhile.
        """
        if card.task == expected.task:
            self._wrong.pop(expected.address, None)
            return
        now = self.now
        since, last = self._wrong.get(expected.address, (now, -inf))
        is_first = now - last > PASSING_SECONDS
        if is_first:
            since = now
        self._wrong[expected.address] = since, now
        if is_first or now - since < self._passing_seconds:
            raise PeerError(f"{card.task} answers there")

    @property
    def _passing_seconds(self) -> float:
        """The seconds for which a wrong worker may answer: at most a third of the gate's limit."""
        limit = self.terms.timeout_seconds
        return min(self.timing.passing_seconds, limit / 3) if limit else self.timing.passing_seconds

    def changed(self) -> None:
        """Wake the task that waits in `news`."""
        self._changed.set()

    async def news(self, seconds: float) -> bool:
        """Wait at most `seconds` for a change; return whether there was one."""
        try:
            async with asyncio.timeout(None if seconds == inf else max(0.0, seconds)):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    @contextlib.contextmanager
    def knows(self, connection: Connection, card: Card) -> Iterator[None]:
        """Include this connection in `tell` and `send_away` as long as the context lasts."""
        self._known[connection] = card
        self.has_met_any |= card.boot != self.card.boot
        try:
            yield
        finally:
            del self._known[connection]
            self.changed()

    @property
    def has_met_all(self) -> bool:
        """Whether all workers of the list are connected, and were compared."""
        met = {card.boot for card in self._known.values()} & self.compared
        return len(met - {self.card.boot}) >= len(self.spec.members) - 1

    def answer_card(self) -> Message:
        """Return the answer to a worker that has introduced itself."""
        return self.card.message(CARD, self.trouble)

    def gave_up(self, line: str, losses: int) -> PeersMissingError:
        """Return the error for too many losses in a row, or for the time limit."""
        if losses > self.terms.most_losses:
            return PeersMissingError(f"gave up after {losses} meetings without a ring: {line}")
        kind = PeersMissingError if self.has_met_any else NobodyCameError
        return kind(f"gave up after {self.limit.length_seconds:g} s: {line}")

    async def tell(self, problems: Iterable[Problem], only: Collection[str] = ()) -> None:
        """Send all workers the reason why the gate ends; wait a moment until they have read it.

        If `only` is not empty, send it only to the workers with these boots.
        """
        message = contradiction(problems)
        told = [one for one, card in self._known.items() if not only or card.boot in only]
        await asyncio.gather(*(_farewell(connection, message) for connection in told))
        until = self.seconds + FAREWELL_SECONDS
        while self._known and await self.news(until - self.seconds):
            pass

    def take(self, connection: Connection, problems: Iterable[Problem]) -> None:
        """Note problems that another worker found; ignore a newcomer's if fewer may continue."""
        teller = self._known.get(connection)
        if teller and self.is_new(teller):
            return
        self.contradictions.take(problems, teller)
        self.changed()

    async def send_away(self) -> None:
        """Send the problems only to the workers that have them, and forget the problems."""
        found, self.contradictions = self.contradictions, Contradictions()
        problems, accused = found.problems(), found.accused
        known, self._sent_away = self._sent_away, accused
        for problem in problems if accused - known else ():
            parts = (
                f"{in_a_line(problem)}.",
                problem.advice,
                "It is sent away, and the others continue.",
            )
            self.terms.say("WARNING", " ".join(filter(None, parts)))
        message = contradiction(problems)
        wrong = [connection for connection, card in self._known.items() if card.boot in accused]
        await asyncio.gather(*(_farewell(connection, message) for connection in wrong))


async def _farewell(connection: Connection, message: Message) -> None:
    """Send the last message, and end only this side, so that the other side can read it."""
    with contextlib.suppress(PeerError):
        await connection.send(message)
    connection.hang_up(at_once=False)
