"""The protocol of the measurement between neighbours, and its limits."""

from __future__ import annotations

from dataclasses import dataclass

PIECE = 2**18
"""Bytes for one system call."""
PING, DATA = b"ping\n", b"data\n"
"""The lines to the right; all that follows DATA is data."""
PONG, RATE, TOLD, ERROR = "pong", "rate", "told", "error"
"""The lines to the left: answers to a ping and to data, numbers of ranks, and a silent rank."""
LONGEST_LINE = 2**20
"""The maximum length in bytes: a thousand workers' numbers are about 20 kB."""
SILENT, CLOSED, WRONG = (
    "does not answer",
    "has closed the connection",
    "sends an invalid answer",
)


@dataclass(frozen=True)
class Effort:
    """The limits of the measurement."""

    pings: int
    ping_seconds: float
    """After this time no more pings are sent, if a few were sent."""
    data_bytes: int
    data_seconds: float
    """The data end at the first of these two limits."""
    patience_seconds: float = 5.0
    """The time for which a neighbour may be silent."""


AT_A_START = Effort(10, 0.05, 8 * 2**20, 0.15)
THOROUGH = Effort(100, 1.0, 256 * 2**20, 2.0, patience_seconds=10.0)


class MeasuringError(Exception):
    """A worker does not answer; `rank` is its number in the ring."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(f"rank {rank} {reason}")
        self.rank, self.reason = rank, reason
