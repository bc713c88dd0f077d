"""What comes of passing the gate: who was released together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Meeting:
    """Who was released together, and by what they know each other."""

    identity: str = ""
    """Exactly those know it that were released together; "" where there was no gate, or where this
    worker may go ahead and is to meet the others later."""
    positions: tuple[int, ...] = ()
    """Who they are: places in the list of all workers, ascending; () for all of them."""
    all_ask: bool = False
    """Whether the commands of all of them have asked for their neighbours."""

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
class Fewer:
    """When those who have been in a ring go on without the others."""

    least: int
    """How many they must be, worker 0 among them: more than half of all."""
    after_seconds: float
    """For how long they wait for the others first."""
