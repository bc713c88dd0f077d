"""Finds out whether the network limits the speed, from the time that steps wait for sums.

A step waits for sums from the moment at which this worker's own gradients are ready. The worker
that waits least is the slowest one. If it is always the same worker, it waits for no other, and its
wait is the duration of the sums themselves. If a different worker is the slowest in each step, all
wait for others, too, and the sums take less time. If the wait is more than a third of 30 s of
training, a faster network or fewer sums would help.
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
SMALL_BYTES = 2**16
"""Up to about this size, a sum takes as long as its round trips, at any rate."""
MOST, ALMOST_ALL = 0.5, 0.9
"""The fractions of the wait that float32 sums must explain. The rest is for sparse rows."""
EVERY = "TRAINER_SYNC_EVERY"
NOT_EXACT = "not exact: each worker takes steps by itself; auto chooses how many"
HELPS = "larger batches or a faster network would help"
BITS, GIGA, MILLI = 8, 1e9, 1e-3


@dataclass(frozen=True)
class Interval:
    """Some seconds of training.

    Attributes:
        seconds: their number.
        sums: the time for which the worker that waited least waited for sums.
        exchanging: the time that this worker spent in float32 sums, including those outside of
            steps.
        sent_bytes: the bytes that this worker sent in float32 sums.
        exchanges: the number of these sums.
    """

    seconds: float
    sums: float
    exchanging: float
    sent_bytes: int
    exchanges: int


class NetworkLimit:
    """Watches the last 30 s of a process's training, over all of its fits.

    Attributes:
        is_told: whether the limit was reported.
    """

    def __init__(self) -> None:
        self._intervals: deque[Interval] = deque()
        self.is_told = False

    def note(self, interval: Interval) -> None:
        """Record the seconds since the last call."""
        self._intervals.append(interval)
        while self._seconds - self._intervals[0].seconds >= WINDOW_SECONDS:
            self._intervals.popleft()

    @property
    def _seconds(self) -> float:
        return sum(one.seconds for one in self._intervals)

    @property
    def _exchanging(self) -> float:
        return sum(one.exchanging for one in self._intervals)

    @property
    def _exchanges(self) -> int:
        return sum(one.exchanges for one in self._intervals)

    @property
    def _sent_bytes(self) -> int:
        return sum(one.sent_bytes for one in self._intervals)

    @property
    def _waited(self) -> float:
        return min(sum(one.sums for one in self._intervals), self._seconds)

    @property
    def share(self) -> float:
        """The fraction of the window in which the worker that waited least waited for sums."""
        return self._waited / max(self._seconds, 1e-9)

    @property
    def bits_per_second(self) -> float:
        """This worker's bits of float32 sums, divided by the seconds of these sums.

        The seconds include round trips and waiting for slower workers, so the network may be
        faster.
        """
        return BITS * self._sent_bytes / max(self._exchanging, 1e-9)

    @property
    def is_reached(self) -> bool:
        """Whether sums took too much of a whole window."""
        return self._seconds >= WINDOW_SECONDS and self.share > LIMIT

    def in_words(self, *, is_rounded: bool, in_rounds: bool = False) -> str:
        """Return a text: the time of the sums, remedies, and their gains.

        Args:
            is_rounded: whether gradients are already sent as bfloat16.
            in_rounds: whether weights are averaged every few steps, instead of sums in each.
        """
        what = "averages of weights" if in_rounds else "sums of gradients"
        take = f"{what} take {self.share:.0%} of the time"
        rounds = f"{EVERY}=16"
        longer = f"a larger {EVERY} (up to an epoch's steps)"
        helps = f"{longer}, {HELPS}" if in_rounds else HELPS
        if self._sends_much:
            rate = f"{self.bits_per_second / GIGA:.2g} Gbit/s"
            gains = "" if in_rounds else self._gains(rounds, is_rounded=is_rounded)
            return f"the network is the limit: {take} at {rate}; {gains}{helps}"
        if not self._is_of_sums(MOST):
            return f"the network is the limit: {take}; {helps}"
        each = f"about {self._exchanging / self._exchanges / MILLI:.2g} ms each"
        fewer = longer if in_rounds else f"{rounds} ({NOT_EXACT})"
        return f"the steps are short: {take}, {each}; larger batches or {fewer} would help"

    def _gains(self, rounds: str, *, is_rounded: bool) -> str:
        """Return the gains of smaller and of fewer sums, in words; "" if there are none."""
        gains = []
        if not is_rounded:
            gain = f"TRAINER_WIRE=bfloat16 would train {self._faster(HALF)}"
            gains.append(f"{gain} (gradients are rounded on the way)")
        if self._is_of_sums(ALMOST_ALL):  # rounds send whole tables in place of sparse rows
            gains.append(f"{rounds} would train {self._faster(OF_ROUNDS)} ({NOT_EXACT})")
        return f"{', '.join(gains)}, and " if gains else ""

    @property
    def _sends_much(self) -> bool:
        """Whether sums are so large that they take longer than their round trips."""
        return self._sent_bytes > SMALL_BYTES * self._exchanges

    def _is_of_sums(self, part: float) -> bool:
        """Return whether float32 sums, and not sparse rows, cause this much of the wait."""
        return 0 < part * self._waited <= self._exchanging

    def _faster(self, left: float) -> str:
        """Return the speed-up in words, if this fraction of the float32 sums is left."""
        share = min(self._waited, self._exchanging) / max(self._seconds, 1e-9)
        return f"up to {1 / (1 - share * (1 - left)):.1f} times as fast"
