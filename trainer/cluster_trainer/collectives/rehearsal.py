"""What stands for the ring of a worker that comes late, until the others take it in."""

from concurrent.futures import Future

import numpy as np

from cluster_trainer.collectives.ring.background import over


class Rehearsal:
    """A ring of one worker that answers as if all the others did as this one does.

    While the others train, a first step is traced and done over it. What comes of that is thrown
    away; that it was compiled is not. So the others need not wait for it.

    Args:
        size: how many workers there are when none is missing.
    """

    def __init__(self, size: int) -> None:
        self.rank, self.size, self.generation = 0, size, 0
        self.members = tuple(range(size))

    def all_reduce(
        self,
        values: np.ndarray,
        *,
        wire: str | None = None,  # noqa: ARG002  as of a ring
        what: str = "",  # noqa: ARG002
    ) -> np.ndarray:
        """Return the sum, if all give the same [n]."""
        total: np.ndarray = values * values.dtype.type(self.size)
        return total

    def begin_all_reduce(
        self, values: np.ndarray, *, wire: str | None = None, what: str = ""
    ) -> Future[np.ndarray]:
        """Return what has the sum, if all give the same [n]."""
        return over(self.all_reduce(values, wire=wire, what=what))

    def all_gather(self, value: bytes | np.ndarray, *, what: str = "") -> list[bytes]:  # noqa: ARG002
        """Return the same bytes for every rank."""
        mine = value.tobytes() if isinstance(value, np.ndarray) else bytes(value)
        return [mine] * self.size

    def broadcast(self, value: bytes | None, holder: int, *, what: str = "") -> bytes:  # noqa: ARG002
        """Return what this rank gives, which every other one would give, too."""
        return bytes(value or b"")

    def barrier(self, *, what: str = "") -> None:
        """Return at once."""
