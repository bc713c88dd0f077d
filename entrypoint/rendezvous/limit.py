"""How long a worker waits at a meeting: for the others to come, then for their commands to ask."""

from __future__ import annotations

from math import inf

from entrypoint.rendezvous.terms import Terms


class Limit:
    """Begins anew when those who are missing only start, or do so no more."""

    def __init__(self, terms: Terms, now: float) -> None:
        self._come, self._start = terms.timeout_seconds, terms.start_seconds
        self.is_starting = False
        self._began = now

    @property
    def length_seconds(self) -> float:
        """How long it is; 0 for no limit."""
        return self._start if self.is_starting else self._come

    @property
    def end(self) -> float:
        """When it ends, by the loop's clock."""
        return self._began + (self.length_seconds or inf)

    def note(self, now: float, *, is_starting: bool) -> None:
        """Note whether all who are missing have been here, and their commands only start."""
        if is_starting != self.is_starting:
            self.is_starting, self._began = is_starting, now

    def renew(self, now: float) -> None:
        """Begin anew."""
        self._began = now
