"""Workers that are new to the others of a ring, and may not fit them.

Where a run goes on with fewer workers, whoever is taken in later may have other data or another
script: the gate compares neither. It is new until it has been through an epoch with the others, and
ends alone if it differs from those who are not.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster_trainer.collectives.ring.errors import RingError
from cluster_trainer.collectives.ring.ring import Ring

MEETING = "the beginning of a ring"


class Newcomers:
    """Finds out which workers of a ring are new to the others; all of them look.

    A process trusts the rings in which all have proved to fit, itself too. They do so after the
    same call, which may end well on some workers and not on others, when one is lost in it. So who
    has missed the last ring that others trust is not new, if it trusts the one before; a new
    process trusts none.

    Attributes:
        began_together: whether nobody of the last ring was in one before: all are new processes.
    """

    def __init__(self) -> None:
        # Generations: of the last ring that this process trusts, of the last one that anybody had
        # trusted when that was made, and of the last one that anybody had when the present one was.
        self._trusted = self._before = self._latest = 0
        self._has_met, self.began_together = False, True

    def look(self, ring: Ring) -> frozenset[int]:
        """Return the ranks of those who trained together earlier than others of them did, or never.

        Where nobody is new to anybody, as at a first start, there is none. Nor is there any where
        the ring fails at this: whoever uses it next hears of that.
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
        """Take all workers of a ring for ones that fit."""
        self._trusted, self._before = ring.generation, self._latest


def differing(answers: Sequence[Any], newcomers: frozenset[int]) -> list[int]:
    """Return the ranks that answer otherwise than all who are not new; none where these differ."""
    expected = {answer for rank, answer in enumerate(answers) if rank not in newcomers}
    if len(expected) != 1:
        return []
    return [rank for rank, answer in enumerate(answers) if answer not in expected]
