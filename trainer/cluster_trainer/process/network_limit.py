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
OF_ROUNDS = 3 / 16
"""The share that remains if weights and Adam's two slots are averaged every 16 steps."""
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

    def in_words(self, *, is_rounded: bool, in_rounds: bool = False) -> str:
        """Return how much time the sums take, what would help, and by how much.

        Args:
            is_rounded: whether gradients are already sent as bfloat16.
            in_rounds: whether weights are averaged every few steps, in place of sums in each.
        """
        what = "averages of weights" if in_rounds else "sums of gradients"
        advice = "larger batches or a faster network would help"
        if in_rounds:
            advice = f"a larger TRAINER_SYNC_EVERY, {advice}"
        else:
            left = OF_ROUNDS / HALF if is_rounded else OF_ROUNDS
            instead = " in place of bfloat16" if is_rounded else ""
            advice = (
                f"TRAINER_SYNC_EVERY=16{instead} would train about {self._faster(left):.1f} times "
                f"as fast (not exact: each worker takes steps by itself), and {advice}"
            )
        if not (is_rounded or in_rounds):
            advice = (
                f"TRAINER_WIRE=bfloat16 would train about {self._faster(HALF):.1f} times as fast "
                f"(gradients are rounded on the way), {advice}"
            )
        return (
            f"the network is the limit: {what} take {self.share:.0%} of the time at "
            f"{self.bits_per_second / GIGA:.2g} Gbit/s; {advice}"
        )

    def _faster(self, left: float) -> float:
        """Return how many times as fast it would be with so much of the traffic left."""
        return 1 / (1 - self.share * (1 - left))
