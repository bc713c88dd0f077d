"""A stand-in for the ring of a worker that comes late, until the others let it join."""

from concurrent.futures import Future

import numpy as np

from cluster_trainer.collectives.ring.background import over
from cluster_trainer.collectives.ring.traffic import Traffic


class Rehearsal:
    """A ring of one worker that answers as if all `size` workers acted like this one.

    While the others train, this worker traces and runs a first step over it. The step's results are
    discarded, but its compiled code stays. So the others need not wait for the compilation.
    """

    def __init__(self, size: int) -> None:
        self.rank, self.size, self.generation = 0, size, 0
        self.members = tuple(range(size))
        self.traffic = Traffic()  # nothing is sent

    def all_reduce(self, values: np.ndarray, **_: str | None) -> np.ndarray:
        """Return the sum as if all ranks gave the same values, [n]."""
        total: np.ndarray = values * values.dtype.type(self.size)
        return total

    def begin_all_reduce(self, values: np.ndarray, **_: str | None) -> Future[np.ndarray]:
        """Return a future of the sum as if all ranks gave the same values, [n]."""
        return over(self.all_reduce(values))

    def all_gather(self, value: bytes | np.ndarray, **_: str) -> list[bytes]:
        """Return the same bytes for every rank."""
        mine = value.tobytes() if isinstance(value, np.ndarray) else bytes(value)
        return [mine] * self.size

    def broadcast(self, value: bytes | None, holder: int, **_: str) -> bytes:  # noqa: ARG002
        """Return this rank's value, as if the holder had given the same."""
        return bytes(value or b"")

    def barrier(self, **_: str) -> None:
        """Return at once."""
