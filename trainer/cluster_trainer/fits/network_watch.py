"""Reports that the network limits fits: once on the chief, and to `status` as long as it does."""

import logging
from collections.abc import Callable, Sequence

from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.traffic import Traffic
from cluster_trainer.process.network_limit import Interval, NetworkLimit

log = logging.getLogger("trainer")


class NetworkWatch:
    """Compares how long the workers' steps waited for sums, which they exchange after each call.

    Args:
        limit: notes how long they waited, for all fits of the process.
        ring: computes the sums; None: TensorFlow computes them, and does not report their duration.
        waited: returns how long this worker's steps have waited for sums, in seconds.
        is_chief: whether this worker reports it.
        is_rounded: whether gradients are sent as bfloat16.
        in_rounds: whether weights are averaged every few steps instead.
        tell: is called with two times, in seconds: the duration of the last calls, and the shortest
            time that any worker waited for sums in them.

    Attributes:
        reason: why the network is the limit, for `status`; empty if it is not.
    """

    def __init__(  # noqa: PLR0913
        self,
        limit: NetworkLimit,
        ring: RenewableRing | None,
        waited: Callable[[], float],
        *,
        is_chief: bool,
        is_rounded: bool,
        in_rounds: bool = False,
        tell: Callable[[float, float], object] = lambda *_: None,
    ) -> None:
        self._limit, self._ring, self._waited = limit, ring, waited
        self._is_chief, self._is_rounded, self._in_rounds = is_chief, is_rounded, in_rounds
        self._tell = tell
        self._before: tuple[float, Traffic] | None = None
        self._more = Traffic()
        self.reason = ""

    def mine(self) -> list[float]:
        """Return this worker's numbers for the others: two negated times, in seconds.

        They are the time that steps waited for sums, and the time of the ring's exchanges. The
        workers take the largest of each, which is the shortest time. The first call, which
        compiles, is left out.
        """
        if self._ring is None or self._ring.size == 1:
            return [0.0, 0.0]
        now = self._waited(), self._ring.traffic
        (sums, traffic), self._before = self._before or now, now
        self._more = now[1].since(traffic)
        return [min(0.0, sums - now[0]), -self._more.seconds]

    def take(self, seconds: float, told: Sequence[float]) -> None:
        """Take all workers' numbers: the slowest worker's seconds, and the largest of `mine`."""
        sums, exchanging = (-one for one in told)
        mine = self._more.sent_bytes, self._more.exchanges
        self._limit.note(Interval(seconds, sums, exchanging, *mine))
        self._tell(seconds, sums or exchanging)  # the waits are not measured on a GPU
        if not self._is_chief:
            return
        if not self._limit.is_reached:
            self.reason = ""
            return
        self.reason = self._limit.in_words(is_rounded=self._is_rounded, in_rounds=self._in_rounds)
        if not self._limit.is_told:
            self._limit.is_told = True
            log.warning("%s (docs/how-to/slow-networks.md)", self.reason)
