"""The ring of a process for as long as that lives, however often its workers have to meet anew."""

from collections.abc import Callable

import numpy as np

from cluster_trainer.collectives.ring.errors import OutOfStep, RingError
from cluster_trainer.collectives.ring.ring import Ring


class RenewableRing:
    """A ring whose connections are made anew after it has failed.

    Compiled steps call this object, and not the ring of the moment: they outlive it. They are made
    for one rank and one number of workers, so both stay as they are.

    Args:
        connect: meets all workers; returns a ring of them.
    """

    def __init__(self, connect: Callable[[], Ring]) -> None:
        self._connect, self._ring = connect, connect()
        self.rank, self.size = self._ring.rank, self._ring.size

    def renew(self) -> None:
        """Leave the present ring, and meet all workers in another one.

        Raises:
            RingError: this worker has another place there.
            Exception: what `connect` raises; this object is of no use then.
        """
        self._ring.close()
        ring = self._connect()
        if (ring.rank, ring.size) != (self.rank, self.size):
            ring.close()
            raise OutOfStep(
                f"this worker was {self.rank} of {self.size}, and is {ring.rank} of {ring.size} now"
            )
        self._ring = ring

    @property
    def generation(self) -> int:
        """The number of the present ring."""
        return self._ring.generation

    @property
    def operations(self) -> int:
        """How many operations of the present ring have begun."""
        return self._ring.operations

    @property
    def error(self) -> RingError | None:
        """Why the present ring has ended; None while it has not."""
        return self._ring.error

    def all_reduce(
        self, values: np.ndarray, *, wire: str | None = None, what: str = ""
    ) -> np.ndarray:
        """See Ring.all_reduce."""
        return self._ring.all_reduce(values, wire=wire, what=what)

    def all_gather(self, value: bytes | np.ndarray, *, what: str = "") -> list[bytes]:
        """See Ring.all_gather."""
        return self._ring.all_gather(value, what=what)

    def broadcast(self, value: bytes | None, holder: int, *, what: str = "") -> bytes:
        """See Ring.broadcast."""
        return self._ring.broadcast(value, holder, what=what)

    def barrier(self, *, what: str = "") -> None:
        """See Ring.barrier."""
        self._ring.barrier(what=what)

    def abort(self, reason: str) -> None:
        """See Ring.abort."""
        self._ring.abort(reason)

    def close(self) -> None:
        """See Ring.close."""
        self._ring.close()

    def forget(self) -> None:
        """See Ring.forget."""
        self._ring.forget()
