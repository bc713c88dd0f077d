"""Newcomers: workers that join a ring later, and may not fit the others.

A worker that joins a running cluster may have other data or another script, because the gate
compares neither. It is a newcomer until it has trained an epoch with the others. If it differs from
them, it exits, and the others continue.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster_trainer.collectives.ring.errors import RingError
from cluster_trainer.collectives.ring.ring import Ring

MEETING = "the beginning of a ring"


class Newcomers:
    """Finds out which workers of a ring are newcomers; all workers call its methods.

    A process trusts a ring once all of its workers have proved to fit. A new process trusts none.
    If a worker is lost at that moment, only some workers may come to trust the ring. The others
    are still no newcomers if they trust the ring before it.

    Attributes:
        began_together: whether all members of the last ring were new processes, in no ring before.
    """

    def __init__(self) -> None:
        # Generations of three rings: the last one that this process trusts; the last one that any
        # process trusted when that ring was formed; the last one that any process trusted when the
        # present ring was formed.
        self._trusted = self._before = self._latest = 0
        self._has_met, self.began_together = False, True

    def look(self, ring: Ring) -> frozenset[int]:
        """Return the newcomers' ranks.

        At a first start all workers are new, and none is a newcomer. If the ring fails here, the
        result is empty, and the ring's next call raises the error.
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
    """Return the ranks whose answers differ from the old workers'; [] if these do not agree."""
    expected = {answer for rank, answer in enumerate(answers) if rank not in newcomers}
    if len(expected) != 1:
        return []
    return [rank for rank, answer in enumerate(answers) if answer not in expected]
