"""Finds stragglers by a rule over the activity of each worker.

The workers wait for each other, so a call takes as long as the slowest worker needs. Suppose a
worker was busy for the fraction b of the time, and the others for the fraction m (their median). At
their pace it would have finished earlier by the fraction b - m of the time. So it has cost the
others the sum of (b - m) times the seconds. If that is more than 1 - 1 / 1.2, a sixth, of the time,
calls take more than 20 % longer because of it (docs/explanation/decisions/0012-who-is-slow.md).
"""

from collections import deque
from dataclasses import dataclass
from math import sqrt
from statistics import median, stdev

WINDOW_SECONDS = 30.0
LONGER = 1.2
LOST_SECONDS = WINDOW_SECONDS * (1 - 1 / LONGER)
"""5 s of the last 30: a worker that costs the others more is reported."""
NO_MORE = 0.5
"""A reported worker remains a straggler until it costs less than this fraction of LOST_SECONDS."""
LATELY = 12.0
"""These last seconds are judged separately, too, to find a worker that has just become slow."""
ERRORS = 5
"""The number of standard errors that the sum must exceed, too: if other programs use the machine,
the activity of each worker changes from second to second."""
LEAST_INTERVALS = 4
LEAST_SECONDS = 8.0
"""Nothing is reported earlier, because a call that compiles, or a checkpoint, is not typical."""


@dataclass(frozen=True)
class Interval:
    """Some seconds of training, and the fraction of them in which each worker was busy, by rank."""

    seconds: float
    busy: tuple[float, ...]

    def lost(self, rank: int) -> float:
        """Return how many seconds earlier all would be done if this worker had the others' pace.

        It is negative if the worker waits for the others.
        """
        others = [part for other, part in enumerate(self.busy) if other != rank]
        return self.seconds * (self.busy[rank] - median(others))


class Stragglers:
    """Judges the workers by the last WINDOW_SECONDS.

    Args:
        workers: the number of workers, two or more.

    Attributes:
        workers: the number of workers.
        slow: the ranks of the stragglers.
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
        """Add the interval since the last note, and judge the workers again."""
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
    """Return a text about the time that a straggler costs the others."""
    lost, seconds = stragglers.lost(rank), stragglers.seconds
    longer = round(100 * lost / max(seconds - lost, 0.01 * seconds))
    others = [stragglers.busy(one) for one in range(stragglers.workers) if one != rank]
    return (
        f"holds the others up: steps take {longer} % longer for it (at work for "
        f"{stragglers.busy(rank):.0%} of the last {seconds:.0f} s, the others {median(others):.0%})"
    )
