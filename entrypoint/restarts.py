"""Whether and when a command is started again: crashes are counted only while nothing moves."""

from __future__ import annotations

import os

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0


class Progress:
    """A file that the command touches whenever it has got further than ever before."""

    def __init__(self, path: str) -> None:
        """Remember how the file is now."""
        self.path = path
        self._seen = self._stamp()

    def has_moved(self) -> bool:
        """Whether the file was touched since this was asked before."""
        before, self._seen = self._seen, self._stamp()
        return self._seen != before

    def _stamp(self) -> tuple[int, int] | None:
        """Return what touching or writing changes."""
        try:
            stat = os.stat(self.path)  # noqa: PTH116 -- pathlib is slow to import
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size


class Restarts:
    """Counts the restarts since the last progress."""

    def __init__(self, limit: int, progress: Progress) -> None:
        """Begin with none."""
        self.count, self.limit, self._progress = 0, limit, progress

    def may_restart(self) -> bool:
        """Count a failure; return whether the command may be started again."""
        if self._progress.has_moved():
            self.count = 0
        if self.count >= self.limit:
            return False
        self.count += 1
        return True

    def delay_seconds(self) -> float:
        """Return how long to wait first: twice as long each time, half of it by chance.

        By chance, so that many workers don't come back at the same moment (exponential backoff
        with jitter).
        """
        import random  # noqa: PLC0415 -- slow to import, and a good run needs none

        delay = min(FIRST_DELAY_SECONDS * 2.0 ** (self.count - 1), LONGEST_DELAY_SECONDS)
        return delay * (0.5 + 0.5 * random.random())  # noqa: S311 -- no secret
