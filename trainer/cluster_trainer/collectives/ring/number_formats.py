"""The formats in which numbers are sent in a sum, and the additions of two ranks' numbers."""

import numpy as np

from cluster_trainer.collectives.ring.memory import Memory
from cluster_trainer.collectives.ring.streams import PIECE


class AsTheyAre:
    """Numbers that are sent in their own type.

    Attributes:
        own: this rank's own numbers, as they are sent.
        received: the memory in which other ranks' numbers arrive, to be forwarded from there.
        total: the sum, once the flow is complete.
    """

    def __init__(self, values: np.ndarray, memory: Memory) -> None:
        self.own = values
        self.received = self.total = memory.take(values.size, values.dtype)

    def encode(self, first: int, last: int) -> None:
        """Prepare a range of `own` for sending: nothing to do."""

    def pair(self, first: int, last: int, *, mine_first: bool) -> None:
        """Compute the total of two ranks' numbers."""
        own, other = self.own[first:last], self.received[first:last]
        np.add(*((own, other) if mine_first else (other, own)), out=self.total[first:last])

    def add(self, first: int, last: int, *, is_whole: bool) -> None:  # noqa: ARG002
        """Add this rank's numbers to the received ones."""
        np.add(self.received[first:last], self.own[first:last], out=self.received[first:last])

    def keep(self, first: int, last: int) -> None:
        """Take the received numbers as the total."""

    def over(self, rows: np.ndarray) -> np.ndarray:
        """Return the total of all rows, which are in rank order."""
        np.add(rows[0], rows[1], out=self.total)
        for row in rows[2:]:
            np.add(self.total, row, out=self.total)
        return self.total


class AsBfloat16:
    """float32 numbers that are sent as bfloat16: rounded to nearest even; NaN and infinity stay.

    They are added as float32. Forwarded numbers are rounded again. A rank also rounds the numbers
    that it keeps, so that all ranks have the same.
    """

    def __init__(self, values: np.ndarray, memory: Memory) -> None:
        from ml_dtypes import bfloat16  # noqa: PLC0415 -- sums without it need NumPy alone

        dtype = np.dtype(bfloat16)
        self._values, self._encoded = values, 0
        self._wide = memory.take(min(values.size, PIECE), values.dtype)  # as much as can arrive
        self.own, self.received = memory.take(values.size, dtype), memory.take(values.size, dtype)
        self.total = memory.take(values.size, values.dtype)

    def encode(self, first: int, last: int) -> None:
        """Round a range of this rank's numbers into `own`; ranges must be requested in order."""
        first = max(first, self._encoded)
        if last > first:
            self.own[first:last] = self._values[first:last]
            self._encoded = last

    def pair(self, first: int, last: int, *, mine_first: bool) -> None:
        """Compute the total of two ranks' numbers."""
        self.encode(first, last)
        total, wide = self.total[first:last], self._wide[: last - first]
        total[:] = (self.own if mine_first else self.received)[first:last]
        wide[:] = (self.received if mine_first else self.own)[first:last]
        np.add(total, wide, out=total)

    def add(self, first: int, last: int, *, is_whole: bool) -> None:
        """Add this rank's numbers to the received ones, and keep them if they are the whole sum."""
        wide = self._wide[: last - first]
        wide[:] = self.received[first:last]
        np.add(wide, self._values[first:last], out=wide)
        self.received[first:last] = wide
        if is_whole:
            self.keep(first, last)

    def keep(self, first: int, last: int) -> None:
        """Take the received numbers as the total."""
        self.total[first:last] = self.received[first:last]

    def over(self, rows: np.ndarray) -> np.ndarray:
        """Return the total of all rows, which are in rank order."""
        self.total[:] = rows[0]
        for row in rows[1:]:
            self._wide[:] = row
            np.add(self.total, self._wide, out=self.total)
        return self.total


Numbers = AsTheyAre | AsBfloat16
