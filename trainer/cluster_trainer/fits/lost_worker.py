"""Going on in the same process after another worker of its ring was lost."""

import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from cluster_trainer.collectives import group
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.errors import Aborted, PeerLost, RingError
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results.status_file import StatusFile
from cluster_trainer.settings.task import Task

LOST = (PeerLost, Aborted)
MOST_IN_VAIN = 3
"""For each other worker, losses without a step in between that counts."""
T = TypeVar("T")
log = logging.getLogger("trainer")


class Fit(Protocol):
    """What is gone on with."""

    @property
    def step(self) -> int:
        """The step that it is at."""

    @property
    def begins_again(self) -> bool:
        """Whether this process can begin it again, and not only a new one."""


class Survivor:
    """Does again what a lost worker has ended, from the newest checkpoint of any worker.

    The workers that are left keep their processes, with all that is loaded and compiled. Their
    entrypoints meet at the gate, where the lost one comes, too, once it was started again. It does
    what every process does from its start on. So the others can go on with it only in what has made
    first use of the ring, and from there.

    Args:
        task: which worker this is.
        stop: ends the process at once while it waits.
        status: is told that it waits.
        say: is told so, too; called with what is waited for.
    """

    def __init__(
        self, task: Task, stop: StopRequest, status: StatusFile, say: Callable[[str], Any]
    ) -> None:
        self._task, self._stop, self._status, self._say = task, stop, status, say
        self._reached = self._in_vain = 0

    def run(self, work: Callable[[bool], T], fit: Callable[[], Fit | None]) -> T:
        """Return what the work returns.

        Args:
            work: is told whether a worker was lost, and it is done again.
            fit: returns the fit that the work has come to; None before that.

        Raises:
            RingError: a worker was lost, and only a new process could go on.
        """
        ring = group.current()
        if not isinstance(ring, RenewableRing) or ring.operations:
            return work(False)  # noqa: FBT003
        is_again = False
        while True:
            try:
                return work(is_again)
            except LOST as error:
                if not self._may_go_on(fit()):
                    raise
                self._meet_again(ring, error)
            is_again = True

    def _may_go_on(self, fit: Fit | None) -> bool:
        """Tell whether to go on, and count the losses since the fit got further."""
        if fit is None:
            return True
        self._in_vain = self._in_vain + 1 if fit.step <= self._reached else 1
        self._reached = max(self._reached, fit.step)
        return fit.begins_again and self._in_vain <= MOST_IN_VAIN * (self._task.num_workers - 1)

    def _meet_again(self, ring: RenewableRing, error: RingError) -> None:
        """Wait until all workers are here."""
        who = "a worker" if error.rank is None else self._task.name_of(error.rank)
        waiting = f"{who} was lost: waiting until all {ring.size} workers are here again"
        log.warning("%s (%s)", waiting, error)
        self._say(waiting)
        self._status.tell("starting", waiting)
        self._stop.ends_at_once = True
        try:
            ring.renew()
        finally:
            self._stop.ends_at_once = False
        log.info("all %d workers are here again", ring.size)
