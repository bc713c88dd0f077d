"""Finds stragglers: a rule over the activity of each worker, and nothing else.

While the workers wait for each other, a call takes as long as the slowest needs. Suppose a worker
was busy for the fraction b of the time, and the others for the fraction m (their median). At their
pace it would have finished b - m of the time sooner. It has cost the others the sum of (b - m)
times the seconds. Calls take more than 20 % longer if that is more than 1 - 1 / 1.2, a sixth, of
the time (docs/explanation/decisions/0012-who-is-slow.md).
"""

from collections import deque
from dataclasses import dataclass
from math import sqrt
from statistics import median, stdev

WINDOW_SECONDS = 30.0
LONGER = 1.2
LOST_SECONDS = WINDOW_SECONDS * (1 - 1 / LONGER)
"""5 s of the last 30: a worker that costs more is reported."""
NO_MORE = 0.5
"""A reported worker stays so until it costs less than this fraction of that."""
LATELY = 12.0
"""Also evaluated separately: earlier steps must not hide a worker that has just become slow."""
ERRORS = 5
"""The number of standard errors that the sum must also exceed: if other programs use the machine,
the activity of each worker changes from second to second."""
LEAST_INTERVALS = 4
LEAST_SECONDS = 8.0
"""Nothing is reported before: a call that compiles, or a checkpoint, is not typical."""


@dataclass(frozen=True)
class Interval:
    """Some seconds of training, and the fraction of them in which each worker was busy, by rank."""

    seconds: float
    busy: tuple[float, ...]

    def lost(self, rank: int) -> float:
        """Return how many seconds sooner all would be done if this worker had the others' pace.

        Below 0: it waits for them.
        """
        others = [part for other, part in enumerate(self.busy) if other != rank]
        return self.seconds * (self.busy[rank] - median(others))


class Stragglers:
    """Evaluates the last half minute.

    Args:
        workers: how many there are, two or more.

    Attributes:
        workers: how many there are.
        slow: the ranks of those that hold the others up.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._intervals: deque[Interval] = deque()
        self.slow: tuple[int, ...] = ()

    @property
    def seconds(self) -> float:
        """The length of the window."""
        return sum(one.seconds for one in self._intervals)

    def note(self, interval: Interval) -> None:
        """Add the interval since the last time."""
        self._intervals.append(interval)
        while self.seconds - self._intervals[0].seconds >= WINDOW_SECONDS:
            self._intervals.popleft()
        if self.seconds >= LEAST_SECONDS:
            self.slow = tuple(rank for rank in range(self.workers) if self._is_slow(rank))

    def lost(self, rank: int) -> float:
        """Return how many seconds a worker has cost the others within the window."""
        return sum(one.lost(rank) for one in self._intervals)

    def busy(self, rank: int) -> float:
        """Return the fraction of the window in which a worker was busy."""
        return sum(one.seconds * one.busy[rank] for one in self._intervals) / self.seconds

    def _is_slow(self, rank: int) -> bool:
        if rank in self.slow:
            return self.lost(rank) > LOST_SECONDS * NO_MORE
        return any(_is_much(self._losses(rank, seconds)) for seconds in (WINDOW_SECONDS, LATELY))

    def _losses(self, rank: int, seconds: float) -> list[float]:
        found, left = [], seconds
        for one in reversed(self._intervals):
            if left <= 0:
                break
            found.append(one.lost(rank))
            left -= one.seconds
        return found


def _is_much(losses: list[float]) -> bool:
    if len(losses) < LEAST_INTERVALS:
        return False
    error = stdev(losses) * sqrt(len(losses))
    return sum(losses) > max(LOST_SECONDS, ERRORS * error)


def in_words(stragglers: Stragglers, rank: int) -> str:
    """Describe what a straggler costs the others."""
    lost, seconds = stragglers.lost(rank), stragglers.seconds
    longer = round(100 * lost / max(seconds - lost, 0.01 * seconds))
    others = [stragglers.busy(one) for one in range(stragglers.workers) if one != rank]
    return (
        f"holds the others up: steps take {longer} % longer for it (at work for "
        f"{stragglers.busy(rank):.0%} of the last {seconds:.0f} s, the others {median(others):.0%})"
    )
