"""Whether the network limits the speed: a rule over how long steps waited for sums.

A step waits for sums from the moment at which this worker's own gradients are ready. The worker
that waits least does not wait for others, so its wait is the time of the sums themselves. If that
is more than a third of half a minute of training, a faster network would help.
"""

from collections import deque
from dataclasses import dataclass

WINDOW_SECONDS = 30.0
LIMIT = 1 / 3
"""The share of the training time above which the network is the limit."""
HALF = 0.5
"""The share of the traffic that remains with bfloat16."""
BITS, GIGA = 8, 1e9


@dataclass(frozen=True)
class Interval:
    """Some seconds of training.

    Attributes:
        seconds: how long they took.
        sums: for how many of them the worker that waited least waited for sums.
        exchanging: for how many of them that worker was in an exchange, also outside of steps.
        sent_bytes: by this worker.
    """

    seconds: float
    sums: float
    exchanging: float
    sent_bytes: int


class NetworkLimit:
    """Looks at the last half minute."""

    def __init__(self) -> None:
        self._intervals: deque[Interval] = deque()

    def note(self, interval: Interval) -> None:
        """Note the seconds since the last note."""
        self._intervals.append(interval)
        while self._seconds - self._intervals[0].seconds >= WINDOW_SECONDS:
            self._intervals.popleft()

    @property
    def _seconds(self) -> float:
        return sum(one.seconds for one in self._intervals)

    @property
    def share(self) -> float:
        """The part of the window in which steps waited for sums, and not for other workers."""
        return sum(one.sums for one in self._intervals) / max(self._seconds, 1e-9)

    @property
    def bits_per_second(self) -> float:
        """The rate at which this worker sent during exchanges."""
        seconds = sum(one.exchanging for one in self._intervals)
        return BITS * sum(one.sent_bytes for one in self._intervals) / max(seconds, 1e-9)

    @property
    def is_reached(self) -> bool:
        """Whether sums have taken too much of a whole window."""
        return self._seconds >= WINDOW_SECONDS and self.share > LIMIT

    def in_words(self, *, is_rounded: bool) -> str:
        """Return how much time the sums take, what would help, and by how much.

        Args:
            is_rounded: whether gradients are already sent as bfloat16.
        """
        advice = "larger batches or a faster network would help"
        if not is_rounded:
            faster = 1 / (1 - self.share * (1 - HALF))
            advice = (
                f"TRAINER_WIRE=bfloat16 would train about {faster:.1f} times as fast (gradients "
                f"are rounded on the way), and {advice}"
            )
        return (
            f"the network is the limit: sums of gradients take {self.share:.0%} of the time at "
            f"{self.bits_per_second / GIGA:.2g} Gbit/s; {advice}"
        )
