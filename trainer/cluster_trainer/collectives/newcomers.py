"""Workers that are new to the others of a ring, and may not fit them.

Where a run goes on with fewer workers, whoever is taken in later may have other data or another
script: the gate compares neither. It is new until it has been through an epoch with the others, and
ends alone if it differs from those who are not.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from cluster_trainer.collectives.ring.errors import PeerUnfit, RingError
from cluster_trainer.collectives.ring.ring import Ring

MEETING, LEAVING = "the beginning of a ring", "leaving who does not fit"
NUMBER_BYTES = 8


class RingWithNewcomers(Protocol):
    """A ring that knows who of its ranks is new."""

    @property
    def rank(self) -> int:
        """This process's number."""

    @property
    def newcomers(self) -> frozenset[int]:
        """The ranks that are new to the others."""

    def barrier(self, *, what: str = "") -> None:
        """See Ring.barrier."""


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
        numbers = [one.to_bytes(NUMBER_BYTES) for one in (self._trusted, self._before)]
        mine = b"".join([*numbers, bytes([self._has_met])])
        try:
            rows = ring.all_gather(mine, what=MEETING)
        except RingError:
            return frozenset()
        self.began_together, self._has_met = not any(row[-1] for row in rows), True
        told = [
            (int.from_bytes(row[:NUMBER_BYTES]), int.from_bytes(row[NUMBER_BYTES:-1]))
            for row in rows
        ]
        self._latest, before = max(told)
        found = frozenset(
            rank
            for rank, (trusted, _) in enumerate(told)
            if trusted < self._latest and (not trusted or trusted < before)
        )
        if not found:
            self.trust(ring)
        return found

    def trust(self, ring: Ring) -> None:
        """Take all workers of a ring for ones that fit."""
        self._trusted, self._before = ring.generation, self._latest


def leave_out(ring: RingWithNewcomers, answers: Sequence[Any], what: str) -> bool:
    """Have the others go on without newcomers that answer otherwise; all workers call it.

    Args:
        ring: of the workers.
        answers: of all workers, in the order of their ranks; the same on all, not all equal.
        what: they were asked for, in words for a person.

    Returns:
        whether this worker is one that differs: it has to say in what, and to end. Nobody is left
        out where those who are not new differ, too; it is False then on all.

    Raises:
        PeerUnfit: on those that fit.
    """
    unfit = differing(answers, ring.newcomers)
    if not unfit:
        return False
    with suppress(RingError):  # the last call: who leaves before the others have read tears it
        ring.barrier(what=LEAVING)
    if ring.rank in unfit:
        return True
    raise PeerUnfit(f"rank {unfit[0]}, which is new, differs in {what}", unfit[0])


def differing(answers: Sequence[Any], newcomers: frozenset[int]) -> list[int]:
    """Return the ranks that answer otherwise than all who are not new; none where these differ."""
    expected = {answer for rank, answer in enumerate(answers) if rank not in newcomers}
    if len(expected) != 1:
        return []
    return [rank for rank, answer in enumerate(answers) if answer not in expected]
