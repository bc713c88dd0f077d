"""Who was met at the gate, and yet kept the others from being a ring: left out for a while."""

from __future__ import annotations

import time
from collections.abc import Collection

FIRST_SECONDS, LONGEST_SECONDS = 30.0, 600.0
"""Until one that was left out may be taken in again, the first time and after many."""
FAILURES = 2
"""Meetings in a row without a ring, after which somebody is left out."""


class LeftOut:
    """One worker may reach worker 0, and be reached by it, and yet not reach its right neighbour.

    After two meetings in a row without a ring, those of the last ring go on by themselves, if they
    are enough. The others are latecomers then, and not taken in at once, since that would end the
    ring again.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._in_vain: set[int] = set()
        self._pauses: dict[int, float] = {}
        self.until: dict[int, float] = {}
        """Places in the list of workers, and until when they are not taken in: `time.monotonic`."""

    @property
    def only_last_ring(self) -> bool:
        """Whether the next meeting is to be of those only who were in the last ring."""
        return self._failures >= FAILURES

    def note_failure(self, places: Collection[int]) -> None:
        """Note that those who met at the gate were no ring soon after."""
        self._failures += 1
        self._in_vain = set(places)

    def note_meeting(self, places: Collection[int]) -> None:
        """Note who has met; those who are missing now were left out."""
        for place in self._in_vain.difference(places) if self.only_last_ring else ():
            pause = self._pauses.get(place, FIRST_SECONDS)
            self.until[place] = time.monotonic() + pause
            self._pauses[place] = min(2 * pause, LONGEST_SECONDS)

    def note_ring(self, places: Collection[int]) -> None:
        """Note that there is a ring; what was is forgotten of those who are in it."""
        self._failures, self._in_vain = 0, set()
        for place in places:
            self._pauses.pop(place, None)
            self.until.pop(place, None)
