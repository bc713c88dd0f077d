"""Decides whether and when a command is restarted: failures count only without progress."""

from __future__ import annotations

import random
from pathlib import Path

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0
MOST_DOUBLINGS = 16
# A short pause is enough: at the gate, early workers wait for the others.
LONGEST_MEETING_DELAY_SECONDS = 4.0


class ProgressFile:
    """A file that the command touches whenever it makes progress."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen = self._stamp()

    def has_moved(self) -> bool:
        """Whether the file was changed since the last call."""
        before, self._seen = self._seen, self._stamp()
        return self._seen != before

    def _stamp(self) -> tuple[int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size


class Count:
    """Restarts of one kind since the last progress."""

    def __init__(self, limit: int, longest_delay_seconds: float) -> None:
        self.number, self.limit, self._longest = 0, limit, longest_delay_seconds

    def take(self) -> bool:
        """Count a restart; return whether it is allowed."""
        if self.number >= self.limit:
            return False
        self.number += 1
        return True

    def delay_seconds(self) -> float:
        """Return the pause before a restart: it doubles each time, and half of it is random.

        The random part keeps many workers from returning at the same moment (exponential backoff
        with jitter).
        """
        doublings = min(self.number - 1, MOST_DOUBLINGS)  # larger powers of 2 overflow a float
        delay = min(FIRST_DELAY_SECONDS * 2.0**doublings, self._longest)
        return delay * (0.5 + 0.5 * random.random())  # noqa: S311 -- no secret


class Restarts:
    """Counts restarts since the last progress, after this worker's failures and its peers'.

    If a peer is lost, the peer has failed, not this worker. Each peer may fail `limit` times before
    it gives up, and this worker outlasts them all. So the limit for losses is `limit` times the
    number of peers.

    Attributes:
        has_peers: whether exit code 75 means a lost peer. Without peers it means a crash.
    """

    def __init__(self, limit: int, peers: int, progress: ProgressFile) -> None:
        self.has_peers = peers > 0
        self._own = Count(limit, LONGEST_DELAY_SECONDS)
        self._lost = Count(limit * peers, LONGEST_MEETING_DELAY_SECONDS)
        self._progress = progress

    def after(self, *, peer_lost: bool) -> Count:
        """Return the count that a failure belongs to; progress resets both."""
        if self._progress.has_moved():
            self._own.number = self._lost.number = 0
        return self._lost if peer_lost else self._own
