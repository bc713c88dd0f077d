"""What comes of a meeting: who goes on together, and, where commands ask, a ring of them."""

from __future__ import annotations

import socket
from dataclasses import dataclass

WENT_AHEAD = "ahead"


@dataclass(frozen=True)
class Meeting:
    """Who goes on together."""

    identity: str = ""
    """Worker 0's number for it; WENT_AHEAD where this worker goes ahead and the others wait for it;
    "" where there was none, or where the others train meanwhile."""
    positions: tuple[int, ...] = ()
    """Who they are: places in the list of all workers, ascending; () for all of them."""

    @property
    def text(self) -> str:
        """The meeting as a process tells it to one whose command is about to start."""
        return " ".join([self.identity, *map(str, self.positions)])

    @classmethod
    def read(cls, text: str) -> Meeting:
        """Return what a process has told."""
        identity, *positions = text.split(" ")
        return cls(identity, tuple(map(int, positions)))


@dataclass(frozen=True)
class Ring:
    """This worker's part of a ring."""

    rank: int
    size: int
    generation: int
    positions: tuple[int, ...]
    """Whose ring it is: places in the list of all workers, ascending."""
    left: socket.socket
    right: socket.socket

    def close(self) -> None:
        """Close the own copies of both."""
        self.left.close()
        self.right.close()


@dataclass(frozen=True)
class Fewer:
    """When those who have been in a ring go on without the others."""

    least: int
    """How many they must be, worker 0 among them: more than half of all."""
    after_seconds: float
    """For how long they wait for the others first."""
