"""The ring of a process for its whole life, even if the workers meet again several times."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from cluster_trainer.collectives.newcomers import Newcomers, differing
from cluster_trainer.collectives.rehearsal import Rehearsal
from cluster_trainer.collectives.ring.errors import PeerUnfit, RingError
from cluster_trainer.collectives.ring.ring import Ring
from cluster_trainer.collectives.ring.traffic import Traffic

DOUBT_SECONDS, DOUBT_OF_NEW_SECONDS = 5.0, 1.0
"""The time that a rank waits for the others' verdict if its left neighbour is in a different call.
Afterwards it blames the neighbour. The first is for a newcomer, the second for a newcomer's right
neighbour."""
LEAVING = "excluding an unfit worker"


class RenewableRing:
    """A ring whose connections are renewed after it has failed.

    Compiled steps call this object, because they outlive each ring. The rank and the number of
    workers may change from one meeting to the next.

    Args:
        connect: meets all workers, or those that continue, and returns their ring.
        most: the number of all workers, if fewer may continue; None: all are needed.
        comes_late: whether the others already train. Then they are met when the ring is first used.
        looks: finds the newcomers of a ring; None: there are none.
    """

    def __init__(
        self,
        connect: Callable[[], Ring],
        most: int | None = None,
        *,
        comes_late: bool = False,
        looks: Newcomers | None = None,
    ) -> None:
        self._connect, self._looks, self.most = connect, looks, most
        self._newcomers: frozenset[int] = frozenset()
        self._own_operations = 0
        self._ring = None if comes_late else self._met()
        self._rehearsal: Rehearsal | None = None
        self._tell: list[Callable[[], object]] = []

    @property
    def is_met(self) -> bool:
        """Whether this worker has met the others."""
        return self._ring is not None

    @contextmanager
    def rehearsed(self) -> Iterator[None]:
        """Run the context without the others, before they are met; call `renew` afterwards."""
        self._rehearsal = Rehearsal(self.most or 1)
        try:
            yield
        finally:
            self._rehearsal = None

    @property
    def is_rehearsed(self) -> bool:
        """Whether this worker rehearses; see `rehearsed`."""
        return self._rehearsal is not None

    def renew(self) -> Ring:
        """Leave the present ring, and meet the other workers in a new one.

        Raises:
            Exception: the error of `connect`; this object cannot be used any more.
        """
        self.close()
        self._ring = ring = self._met()
        for tell in self._tell:
            tell()
        return ring

    def tell_of_renewals(self, tell: Callable[[], object]) -> None:
        """Call a function after each renewal, before the new ring is used."""
        self._tell.append(tell)

    def _met(self) -> Ring:
        """Meet the other workers, find the newcomers, and return the ring."""
        ring = self._connect()
        self._newcomers = self._looks.look(ring) if self._looks else frozenset()
        self._own_operations = ring.operations
        ring.doubt(self._doubt_seconds(ring))
        return ring

    def _doubt_seconds(self, ring: Ring) -> float:
        """Return how long to wait for a verdict if the left neighbour is in a different call."""
        if self.most and ring.rank in self._newcomers:
            return DOUBT_SECONDS
        is_left_new = (ring.rank - 1) % ring.size in self._newcomers
        return DOUBT_OF_NEW_SECONDS if self.most and is_left_new else 0.0

    @property
    def newcomers(self) -> frozenset[int]:
        """The newcomers' ranks in the present ring; empty if all workers are needed."""
        return self._newcomers if self.most and not self._rehearsal else frozenset()

    @property
    def began_together(self) -> bool:
        """Whether no worker of the present ring was in one before; see Newcomers."""
        return self._looks is None or self._looks.began_together

    def trust_newcomers(self) -> None:
        """Trust all workers of the present ring; all workers call this."""
        if self._newcomers and self._looks and self._ring:
            self._newcomers = frozenset()
            self._looks.trust(self._ring)
            self._ring.doubt(0.0)

    def leave_out(self, answers: Sequence[Any], what: str) -> bool:
        """Let the others continue without newcomers whose answers differ; all workers call this.

        Args:
            answers: the workers' answers in rank order, not all equal; all workers pass the same.
            what: the subject of the answers, in words for a person.

        Returns:
            whether this worker is a newcomer that differs; then it has to report this, and to exit.
            If the old workers differ among themselves, all workers stay and get False.

        Raises:
            PeerUnfit: other workers are newcomers that differ.
        """
        unfit = differing(answers, self.newcomers)
        if not unfit:
            return False
        with suppress(RingError):  # it fails if a rank leaves before all have passed it
            self.barrier(what=LEAVING)
        if self.rank in unfit:
            return True
        raise PeerUnfit(f"rank {unfit[0]}, which is new, differs in {what}", unfit[0])

    @property
    def _present(self) -> Ring | Rehearsal:
        """The present ring; it is formed now if this worker has not met the others yet."""
        if self._rehearsal:
            return self._rehearsal
        return self._ring or self.renew()

    @property
    def rank(self) -> int:
        """This process's number in the present ring."""
        return self._present.rank

    @property
    def size(self) -> int:
        """The number of processes in the present ring."""
        return self._present.size

    @property
    def size_of_all(self) -> int:
        """The number of processes when no worker is missing."""
        return self.most or self.size

    @property
    def traffic(self) -> Traffic:
        """The bytes that the present ring's float32 sums have sent so far, and their duration."""
        return self._ring.traffic if self._ring else Traffic()

    @property
    def members(self) -> tuple[int, ...]:
        """Each rank's place in the list of all workers, ascending."""
        return self._present.members

    @property
    def generation(self) -> int:
        """The number of the present ring."""
        return self._present.generation

    @property
    def operations(self) -> int:
        """The number of the present ring's operations so far, without those to find newcomers."""
        return self._ring.operations - self._own_operations if self._ring else 0

    @property
    def is_closed(self) -> bool:
        """Whether this process is in no ring: it has left, or has not met the others yet."""
        return self._ring is None or self._ring.is_closed

    @property
    def error(self) -> RingError | None:
        """The error that has ended the present ring; None: it has not failed."""
        return self._ring.error if self._ring else None

    def all_reduce(
        self, values: np.ndarray, *, wire: str | None = None, what: str = ""
    ) -> np.ndarray:
        """See Ring.all_reduce."""
        return self._present.all_reduce(values, wire=wire, what=what)

    def begin_all_reduce(
        self, values: np.ndarray, *, wire: str | None = None, what: str = ""
    ) -> Future[np.ndarray]:
        """See Ring.begin_all_reduce."""
        return self._present.begin_all_reduce(values, wire=wire, what=what)

    def all_gather(self, value: bytes | np.ndarray, *, what: str = "") -> list[bytes]:
        """See Ring.all_gather."""
        return self._present.all_gather(value, what=what)

    def broadcast(self, value: bytes | None, holder: int, *, what: str = "") -> bytes:
        """See Ring.broadcast."""
        return self._present.broadcast(value, holder, what=what)

    def barrier(self, *, what: str = "") -> None:
        """See Ring.barrier."""
        self._present.barrier(what=what)

    def abort(self, reason: str) -> None:
        """See Ring.abort."""
        if self._ring:
            self._ring.abort(reason)

    def refuse(self, why: str) -> None:
        """See Ring.refuse."""
        if self._ring:
            self._ring.refuse(why)

    def leave(self) -> None:
        """See Ring.leave."""
        if self._ring:
            self._ring.leave()

    def close(self) -> None:
        """See Ring.close."""
        if self._ring:
            self._ring.close()

    def forget(self) -> None:
        """See Ring.forget."""
        if self._ring:
            self._ring.forget()
