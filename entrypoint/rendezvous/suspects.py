"""Worker 0's knowledge of the others from ring to ring: which to expect, or to leave out."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from entrypoint.rendezvous.states import Expected

FIRST_SECONDS, LONGEST_SECONDS = 30.0, 600.0
"""The first and the longest pause before a worker that was left out may rejoin."""
FIRST_AFTER_A_RING_SECONDS = 5.0
"""The first pause of a worker that was in a ring. It may have been killed by chance."""
FAILURES = 2
"""A worker is left out after this number of meetings in a row that did not form a ring."""
IN_VAIN = "it was met twice, but no ring was formed with it"
NOT_STAYED = "it joined, and did not stay"


@dataclass(frozen=True)
class Suspect:
    """A worker that rejoins alone, and only after its pause."""

    until: float
    """The end of its pause: seconds of the clock."""
    pause: float
    """The length of its pause in seconds; 0 before its first one."""
    reason: str


class Suspects:
    """The suspects among all workers, by their places in the list.

    Some problems appear only when neighbours connect, after the meeting:

    - A worker and worker 0 reach each other, but the worker does not reach its right neighbour.
      After two meetings in a row without a ring, the workers of the last ring continue alone, if
      they are enough. The others then rejoin one by one, which shows the worker at fault.
    - A worker crashes soon after it joins a ring, and so ends each ring that it joins. The first
      time may be chance.

    Both kinds are latecomers. They rejoin after a pause, because they may end the ring again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._starting: frozenset[int] = frozenset()
        """Workers that were met before the commands' start, and have not been in a ring since."""
        self._awaited: frozenset[int] = frozenset()
        self._failures = 0
        self._in_vain: set[int] = set()
        self._suspects: dict[int, Suspect] = {}
        self._ring: set[int] = set()
        self._taken_in: set[int] = set()
        """Workers that are in this ring, and were not in the previous one."""
        self._ring_since = 0.0

    def expected(self, place: int) -> Expected:
        """Return whether a worker is expected, and why."""
        if place in self._awaited:
            return Expected.AWAITED
        if place in self._starting:
            return Expected.STARTS
        if place in self.places:
            return Expected.LEFT_OUT
        is_absent = bool(self._ring or self._starting) and place not in self._ring
        return Expected.MISSING if is_absent else Expected.COMES

    def note_start(self, places: Collection[int]) -> None:
        """Note the workers that were met before the commands' start; all of them will ask."""
        self._starting = frozenset(places)

    def note_waiting(self, places: Collection[int]) -> None:
        """Note the workers that wait to join. The ring is about to end to let them in."""
        self._awaited = frozenset(places)

    @property
    def is_starting(self) -> bool:
        """Whether there was no ring yet since the commands' start."""
        return bool(self._starting)

    @property
    def only_last_ring(self) -> bool:
        """Whether only workers of the last ring may take part in the next meeting."""
        return self._failures >= FAILURES

    @property
    def places(self) -> set[int]:
        """Workers to leave out of the next ring, unless they rejoined or too few would remain."""
        return set(self._suspects) - self._ring

    def admitted(self, waiting: Collection[int]) -> list[int]:
        """Return the waiting workers that may rejoin: all trusted ones, otherwise one suspect."""
        trusted = [place for place in waiting if place not in self._suspects]
        tried = [place for place in waiting if place in self._suspects and not self.pause(place)]
        return trusted or sorted(tried, key=lambda place: self._suspects[place].until)[:1]

    def pause(self, place: int) -> float:
        """Return the seconds for which a worker is still left out."""
        suspect = self._suspects.get(place)
        return max(0.0, suspect.until - self._clock()) if suspect else 0.0

    def why(self, place: int) -> str:
        """Return a clause such as "is left out for 30 s: it was …"; "" if its pause is over."""
        if not self.pause(place):
            return ""
        suspect = self._suspects[place]
        return f"is left out for {suspect.pause:g} s: {suspect.reason}"

    def note_failure(self, places: Collection[int]) -> None:
        """Note that the workers that met at the gate did not form a ring."""
        self._failures += 1
        self._in_vain = set(places)

    def note_meeting(self, places: Collection[int]) -> list[int]:
        """Note the workers that have met, and return those that are newly left out.

        Missing workers have prevented a ring, or have not stayed in one.
        """
        before = dict(self._suspects)
        if self.only_last_ring:
            for place in self._in_vain.difference(places):
                self._leave_out(place, IN_VAIN, FIRST_SECONDS)
        has_lasted = self._clock() - self._ring_since >= LONGEST_SECONDS
        for place in self._taken_in:
            if place in places or has_lasted:
                self._suspects.pop(place, None)
            elif place in self._suspects:
                self._leave_out(place, NOT_STAYED, FIRST_AFTER_A_RING_SECONDS)
            else:
                self._suspects[place] = Suspect(self._clock(), 0.0, NOT_STAYED)
        self._taken_in = set()
        found = sorted(self._suspects.items())
        return [place for place, one in found if one.pause and one is not before.get(place)]

    def note_ring(self, places: Collection[int]) -> None:
        """Note a ring. The next meeting shows whether the workers that rejoined have stayed."""
        self._failures, self._in_vain = 0, set()
        self._starting = self._awaited = frozenset()
        self._taken_in = set(places) - self._ring if self._ring else set()
        self._ring, self._ring_since = set(places), self._clock()

    def _leave_out(self, place: int, reason: str, first_seconds: float) -> None:
        """Leave a worker out, for twice as long as the last time."""
        before = self._suspects.get(place)
        longer = 2 * before.pause if before else 0.0
        pause = min(max(first_seconds, longer), LONGEST_SECONDS)
        self._suspects[place] = Suspect(self._clock() + pause, pause, reason)
