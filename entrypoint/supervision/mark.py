"""What several processes of the entrypoint know in common."""

from __future__ import annotations

import os

BYTES = 8


class Mark:
    """Set or not; shared with every process that is forked from the one that makes it."""

    def __init__(self) -> None:
        self._file = os.memfd_create("mark")

    def set(self) -> None:
        """Note that it has happened."""
        os.pwrite(self._file, b"1", 0)

    def clear(self) -> None:
        """Note that it has not."""
        os.ftruncate(self._file, 0)

    def is_set(self) -> bool:
        """Whether it has."""
        return os.fstat(self._file).st_size > 0


class Generations:
    """The newest generation of this worker's rings, over all runs; shared as a mark is."""

    def __init__(self) -> None:
        self._file = os.memfd_create("generation")

    @property
    def newest(self) -> int:
        """The newest that was noted; 0 before any."""
        return int.from_bytes(os.pread(self._file, BYTES, 0), "big")

    def note(self, generation: int) -> None:
        """Note another one."""
        if generation > self.newest:
            os.pwrite(self._file, generation.to_bytes(BYTES, "big"), 0)
