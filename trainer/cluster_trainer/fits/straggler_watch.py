"""Finds stragglers while a fit runs, and reports them: on the screen, and to `status`."""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from cluster_trainer.collectives.workers import Workers
from cluster_trainer.engine.waits import INPUT
from cluster_trainer.process.shortage import Used, shortage
from cluster_trainer.process.stragglers import WINDOW_SECONDS, Interval, Stragglers, in_words
from cluster_trainer.process.utilization import Utilization, UtilizationSampler
from cluster_trainer.results.on_screen.screen import OWN
from cluster_trainer.settings.task import Task

LEAST_SECONDS = 0.5
"""Shorter calls are judged together."""
log = logging.getLogger("trainer")


class StragglerWatch:
    """Compares the pace of the workers; after each exchange all of them have the same result.

    Args:
        task: this worker's task.
        workers: the workers that train together.
        looks: whether this worker's activity can be observed; with GPUs it cannot.
        most: the number of workers if none is missing; None: the fit needs all workers.
        waited: returns how long this worker's steps have waited, in seconds, by reason.

    Attributes:
        reason: why this worker is a straggler, for `status`; "": it is not.
        busy: the fraction of the last interval in which this worker was busy; None: unknown.
    """

    def __init__(
        self,
        task: Task,
        workers: Workers,
        *,
        looks: bool,
        most: int | None = None,
        waited: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._task, self._rank, self._members = task, workers.rank, workers.members
        self._most, self._waited = most or 0, waited
        self._looks = looks and len(self._members) > 1
        self._sampler: UtilizationSampler | None = None
        self._told = self._counted = Utilization()
        # The used resources and the utilization at each look within the window, oldest first.
        self._looks_back: deque[tuple[Used, Utilization]] = deque()
        self._stragglers = Stragglers(len(self._members))
        self.reason = ""
        self.busy: float | None = None

    @property
    def slow(self) -> tuple[str, ...]:
        """The names of the stragglers."""
        return tuple(self._task.name_of(self._members[rank]) for rank in self._stragglers.slow)

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the workers that are missing."""
        places = [place for place in range(self._most) if place not in self._members]
        return tuple(self._task.name_of(place) for place in places)

    def mine(self) -> list[float]:
        """Return this worker's numbers for the others: a row with two numbers for each worker.

        They are the seconds since the last exchange, and the seconds in which it was busy; the
        other workers' numbers are 0. The first call, which compiles, does not count.
        """
        row = [0.0] * (2 * len(self._members))
        if self._sampler:
            self._told = self._sampler.so_far()
            now = self._told.since(self._counted)
            row[2 * self._rank : 2 * self._rank + 2] = [now.seconds, now.busy]
        elif self._looks:
            self._sampler = UtilizationSampler()
            self._sampler.begin()
            self._looks_back.append((self._used(), Utilization()))
        return row

    def take(self, told: Sequence[float]) -> None:
        """Take all workers' numbers: the largest of each."""
        seconds, busy = told[::2], told[1::2]
        if len(self._members) == 1 or min(seconds) < LEAST_SECONDS:
            return
        self._counted = self._told
        parts = tuple(min(1.0, one / time) for one, time in zip(busy, seconds, strict=True))
        self._stragglers.note(Interval(min(seconds), parts))
        self.busy = parts[self._rank]
        self._tell()
        self._look_back()

    def end(self) -> None:
        """Stop observing this worker's activity."""
        if self._sampler:
            self._sampler.end()

    def _tell(self) -> None:
        """Log when this worker becomes a straggler, or stops being one."""
        is_slow = self._rank in self._stragglers.slow
        if is_slow and not self.reason:
            self.reason = f"{in_words(self._stragglers, self._rank)}: {self._shortage()}"
            log.warning("%s %s", self._task.name, self.reason)
        elif self.reason and not is_slow:
            self.reason = ""
            log.info("%s no longer holds the others up", self._task.name, extra=OWN)

    def _shortage(self) -> str:
        """Return which resource this worker lacked, in the window by which it is judged."""
        now = self._used()
        before, began = self._looks_back[0] if self._looks_back else (now, Utilization())
        labour = self._counted.since(began)
        time = max(labour.seconds, 1e-9)
        return shortage(before, now, labour.busy / time, labour.disk / time)

    def _used(self) -> Used:
        return Used.now(self._waited().get(INPUT))

    def _look_back(self) -> None:
        """Note the used resources so far, and forget those from before the window."""
        if not self._looks:
            return
        self._looks_back.append((self._used(), self._counted))
        oldest = self._counted.seconds - WINDOW_SECONDS
        while len(self._looks_back) > 1 and self._looks_back[1][1].seconds <= oldest:
            self._looks_back.popleft()
