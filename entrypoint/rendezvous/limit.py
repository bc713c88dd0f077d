"""How long a worker waits at a meeting: for the others to come, and for their commands to ask."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from entrypoint.rendezvous.terms import Terms

COMING, STARTING = False, True
"""Whether all who are missing have been here, and their commands only start."""


class Limit:
    """A limit for those who come, and one for commands that start; only one of them runs at a time.

    A change from one to the other restarts neither, or a worker that flaps would extend both.
    """

    def __init__(self, terms: Terms, clock: Callable[[], float]) -> None:
        self._lengths = {COMING: terms.timeout_seconds, STARTING: terms.start_seconds}
        self._spent = {COMING: 0.0, STARTING: 0.0}
        self.is_starting = COMING
        self._clock, self._since = clock, clock()

    @property
    def length_seconds(self) -> float:
        """How long the present one is; 0 for no limit."""
        return self._lengths[self.is_starting]

    @property
    def left_seconds(self) -> float:
        """What is left of it; infinite without a limit."""
        spent = self._spent[self.is_starting] + self._clock() - self._since
        return (self.length_seconds or inf) - spent

    def note(self, *, is_starting: bool) -> None:
        """Note which of the two runs from now on."""
        now = self._clock()
        self._spent[self.is_starting] += now - self._since
        self.is_starting, self._since = is_starting, now

    def renew(self, *, is_starting: bool) -> None:
        """Restart one of them."""
        self.note(is_starting=self.is_starting)
        self._spent[is_starting] = 0.0
