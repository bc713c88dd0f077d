"""Newcomers: workers that join a ring later, and may not fit the others.

When a run continues with fewer workers, a worker that joins later may have other data or another
script: the gate compares neither. It is a newcomer until it has trained an epoch with the others,
and exits alone if it differs from them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster_trainer.collectives.ring.errors import RingError
from cluster_trainer.collectives.ring.ring import Ring

MEETING = "the beginning of a ring"


class Newcomers:
    """Finds out which workers of a ring are newcomers; all workers call it.

    A process trusts a ring in which all workers have proved to fit. When a worker is lost, that
    call may succeed on some workers only. So a worker that missed the last ring that others trust
    is no newcomer if it trusts the one before. A new process trusts none.

    Attributes:
        began_together: whether no member of the last ring was in one before: all are new processes.
    """

    def __init__(self) -> None:
        # Generations: of the last ring that this process trusts; of the last one that any process
        # trusted when that was made; of the last one that any process trusted at the present
        # meeting.
        self._trusted = self._before = self._latest = 0
        self._has_met, self.began_together = False, True

    def look(self, ring: Ring) -> frozenset[int]:
        """Return the newcomers' ranks.

        There are none at a first start, where all workers are new. Nor are there any if the ring
        fails here: its next call raises the error.
        """
        mine = np.array([self._trusted, self._before, self._has_met], np.int64)
        try:
            rows = ring.all_gather(mine, what=MEETING)
        except RingError:
            return frozenset()
        told = [np.frombuffer(row, np.int64).tolist() for row in rows]
        self.began_together, self._has_met = not any(has_met for *_, has_met in told), True
        self._latest, before, _ = max(told)
        found = frozenset(
            rank
            for rank, (trusted, *_) in enumerate(told)
            if trusted < self._latest and (not trusted or trusted < before)
        )
        if not found:
            self.trust(ring)
        return found

    def trust(self, ring: Ring) -> None:
        """Trust all workers of a ring."""
        self._trusted, self._before = ring.generation, self._latest


def differing(answers: Sequence[Any], newcomers: frozenset[int]) -> list[int]:
    """Return the ranks that answer differently from all old workers; none if these disagree."""
    expected = {answer for rank, answer in enumerate(answers) if rank not in newcomers}
    if len(expected) != 1:
        return []
    return [rank for rank, answer in enumerate(answers) if answer not in expected]
