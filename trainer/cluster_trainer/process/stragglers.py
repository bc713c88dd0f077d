"""Which workers hold the others up: a rule over what each was at, and nothing else.

While the workers wait for each other, a call takes as long as the slowest needs. A worker that was
at work for the part b of the time, where the others were for the part m (their median), would have
been done b - m of the time sooner at their pace. What it has cost the others is the sum of
(b - m) times the seconds; calls take more than 20 % longer for it where that is more than
1 - 1 / 1.2, a sixth, of the time (docs/explanation/decisions/0012-who-is-slow.md).
"""

from collections import deque
from dataclasses import dataclass
from math import sqrt
from statistics import median, stdev

WINDOW_SECONDS = 30.0
LONGER = 1.2
LOST_SECONDS = WINDOW_SECONDS * (1 - 1 / LONGER)
"""5 s of the last 30: a worker that costs more is named, however soon it has."""
NO_MORE = 0.5
"""One that is named is so until it costs less than this part of that."""
LATELY = 12.0
"""Looked at by themselves as well: one that has become slow is not hidden by the time before."""
ERRORS = 5
"""How many standard errors of the sum it has to be, too: on a machine that other programs use, what
each is at changes from second to second."""
LEAST_INTERVALS = 4
LEAST_SECONDS = 8.0
"""Before, nothing is said: a call that compiles, or a checkpoint, is not the run."""


@dataclass(frozen=True)
class Interval:
    """Some seconds of training, and for which part of them each worker was at work, by rank."""

    seconds: float
    busy: tuple[float, ...]

    def lost(self, rank: int) -> float:
        """Return how many seconds sooner all would be done, had this worker had the others' pace.

        Below 0: it waits for them.
        """
        others = [part for other, part in enumerate(self.busy) if other != rank]
        return self.seconds * (self.busy[rank] - median(others))


class Stragglers:
    """Looks at the last half minute.

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
        """How long the window is."""
        return sum(one.seconds for one in self._intervals)

    def note(self, interval: Interval) -> None:
        """Take notice of what has come to pass since the last time."""
        self._intervals.append(interval)
        while self.seconds - self._intervals[0].seconds >= WINDOW_SECONDS:
            self._intervals.popleft()
        if self.seconds >= LEAST_SECONDS:
            self.slow = tuple(rank for rank in range(self.workers) if self._is_slow(rank))

    def lost(self, rank: int) -> float:
        """Return how many seconds a worker has cost the others within the window."""
        return sum(one.lost(rank) for one in self._intervals)

    def busy(self, rank: int) -> float:
        """Return for which part of the window a worker was at work."""
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
    """Return what a slow worker costs the others."""
    lost, seconds = stragglers.lost(rank), stragglers.seconds
    longer = round(100 * lost / max(seconds - lost, 0.01 * seconds))
    others = [stragglers.busy(one) for one in range(stragglers.workers) if one != rank]
    return (
        f"holds the others up: steps take {longer} % longer for it (at work for "
        f"{stragglers.busy(rank):.0%} of the last {seconds:.0f} s, the others {median(others):.0%})"
    )
