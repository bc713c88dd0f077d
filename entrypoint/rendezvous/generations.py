"""The newest ring of this worker, shared by all processes of one start."""

from __future__ import annotations

import os

BYTES = 8


class Generations:
    """The newest ring of this worker, over all runs of its command.

    It is shared with every process forked from the one that creates it.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("generation")

    @property
    def newest(self) -> int:
        """The newest generation; 0 before any."""
        return self._read()[0]

    @property
    def size(self) -> int:
        """The number of workers in that ring."""
        return self._read()[1]

    def note(self, generation: int, size: int) -> None:
        """Note a ring of `size` workers, if it is newer."""
        if generation > self.newest:
            both = generation.to_bytes(BYTES, "big") + size.to_bytes(BYTES, "big")
            os.pwrite(self._file, both, 0)

    def _read(self) -> tuple[int, int]:
        both = os.pread(self._file, 2 * BYTES, 0)
        return int.from_bytes(both[:BYTES], "big"), int.from_bytes(both[BYTES:], "big")
