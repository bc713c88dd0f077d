"""Continues a fit in the same process when a worker is lost, or comes back."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any, Protocol

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.errors import (
    Aborted,
    OtherCall,
    PeerLost,
    PeerUnfit,
    RingError,
)
from cluster_trainer.problems import (
    ConfigurationError,
    NotRehearsedError,
    PeerLostError,
    Problem,
    RehearsedError,
    StopRequestedError,
    WorkerIsBackError,
    listed,
)
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results.on_screen.screen import OWN
from cluster_trainer.results.status_file import StatusFile
from cluster_trainer.settings.task import Task

LOST = (PeerLost, Aborted)
INTERRUPTIONS = (*LOST, OtherCall, WorkerIsBackError)
"""Errors that may end a fit which the same process then repeats; see `interrupted` below."""
MOST_IN_VAIN = 3
"""The number of losses, per other worker, that are accepted without a completed step between."""
LEAVING = "fit (a worker is back)"
log = logging.getLogger("trainer")


class Fit(Protocol):
    """The work that continues."""

    @property
    def step(self) -> int:
        """Its present step."""

    @property
    def has_trained(self) -> bool:
        """Whether the model may differ from its state at the beginning of the fit."""

    @property
    def begins_again(self) -> bool:
        """Whether this process can begin it again; otherwise only a new process can."""


class Footing(Enum):
    """The relation of this process to the other workers when it begins a fit."""

    UNKNOWN = "they have not met"
    ONCE = "a loss ends it: there is no ring, or the program has used it before this fit"
    TOGETHER = "all of them begin"
    LATE = "the others train already"
    AGAIN = "it has begun before in this process, or continues the others' training"


class ElasticRecovery:
    """Repeats a fit after the loss of a worker, from the newest checkpoint of any worker.

    The survivors keep their processes, with everything that is loaded and compiled. Their
    entrypoints meet at the gate, and the lost worker comes there once it was restarted. With
    MIN_WORKERS they continue without it for a time, and meet again when it is back.

    The lost worker's new process runs its program from the start. So the survivors can only repeat
    the first work of their program that has used the ring, or later work in the same fit.

    `_to_its_end` in fit.py calls the methods in order.

    Args:
        task: this worker's task.
        stop: ends the process at once while it waits.
        status: gets the state while the process waits.
        say: is called with the reason for waiting.

    Attributes:
        footing: the relation of this process to the others.
        has_trained: whether the fit had begun to train before it was repeated.
    """

    def __init__(
        self, task: Task, stop: StopRequest, status: StatusFile, say: Callable[[str], Any]
    ) -> None:
        self._task, self._stop, self._status, self._say = task, stop, status, say
        self._reached = self._in_vain = 0
        self._ring: RenewableRing | None = None
        self._has_begun = False
        self.footing = Footing.UNKNOWN
        self.has_trained = False

    @property
    def goes_on(self) -> bool:
        """Whether the running work can be repeated."""
        return self.footing not in {Footing.UNKNOWN, Footing.ONCE}

    @property
    def comes_late(self) -> bool:
        """Whether the others already train, and this worker is not prepared yet."""
        return self.footing is Footing.LATE

    @property
    def is_again(self) -> bool:
        """Whether the work has begun before, here or on the others."""
        return self._has_begun or self.footing is Footing.AGAIN

    def begin_again(self) -> None:
        """Note that the work begins again with the same workers, from its first checkpoint."""
        self._has_begun = self.has_trained = True

    def meet(self) -> None:
        """Meet the other workers, unless that has happened before."""
        self._stop.ends_at_once = True
        try:
            ring = (
                process_ring.current()
            )  # a script's ring is formed here, once all workers have come
        finally:
            self._stop.ends_at_once = False
        if not isinstance(ring, RenewableRing) or ring.operations:
            self.footing = Footing.ONCE
            return
        self._ring = ring
        self.footing = Footing.TOGETHER if ring.is_met else Footing.LATE

    def come_late(self, rehearse: Callable[[], object]) -> None:
        """Prepare for the first step while the others train, and then ask to join them.

        Args:
            rehearse: runs a first step without keeping its results, and raises RehearsedError.
        """
        assert self._ring  # noqa: S101  which the others have formed
        log.info("the others train already: this worker prepares meanwhile", extra=OWN)
        text = "a first step is compiled: asking to join"
        try:
            with self._ring.rehearsed():
                rehearse()
        except NotRehearsedError as reason:
            text = f"nothing is compiled before they pause: {reason}"
        except RehearsedError:
            pass
        log.info(text, extra=OWN)
        self.has_trained = True
        self.meet_again("ready to train: waiting until the others let this worker join")

    def interrupted(self, error: Exception, fit: Fit | None) -> str:
        """Return a text that names the workers to wait for before the work can be repeated.

        Args:
            error: the error that has ended the work, one of INTERRUPTIONS. WorkerIsBackError must
                only be raised on all workers, and if `goes_on` is true.
            fit: the fit that was running; None: it had not begun.

        Raises:
            RingError: a worker was lost, and only a new process could continue.
            ConfigurationError: this worker is new, and its calls differ from the others'.
            PeerLostError: the workers' calls differ, and it is unclear which worker is at fault.
                The calls of new processes may agree.
        """
        ring = self._ring
        if ring is None:
            raise error
        if isinstance(error, WorkerIsBackError):
            return self._is_back(ring, str(error), fit)
        lost = of_newcomer(ring, error) if isinstance(error, OtherCall) else error
        if isinstance(lost, LOST) and self._may_go_on(fit):
            return self._lost(ring, lost)
        if lost is error:
            raise error
        raise lost from error.__cause__

    def meet_again(self, waiting: str) -> None:
        """Wait until enough workers are here to repeat the work.

        Args:
            waiting: a text that names the workers to wait for.

        Raises:
            StopRequestedError: this process was asked to stop before a worker was lost.
        """
        assert self._ring  # noqa: S101  else it was not interrupted
        self._say(waiting)
        self._status.tell("starting", waiting)
        self._stop.ends_at_once = True
        try:
            if self._stop.signal_number:  # by a stop that came before
                raise StopRequestedError(self._stop.signal_number)
            self._ring.renew()
        finally:
            self._stop.ends_at_once = False
        self.footing = Footing.AGAIN
        self._tell_who_is_here(self._ring)

    def _may_go_on(self, fit: Fit | None) -> bool:
        """Count the losses since the fit last made progress; tell whether to repeat it."""
        step = fit.step if fit else 0
        self._in_vain = self._in_vain + 1 if step <= self._reached else 1
        self._reached = max(self._reached, step)
        self.has_trained |= fit is not None and fit.has_trained
        begins_again = fit is None or fit.begins_again
        return begins_again and self._in_vain <= MOST_IN_VAIN * (self._task.num_workers - 1)

    def _lost(self, ring: RenewableRing, error: RingError) -> str:
        """Log that a worker was lost; return a text that names the workers to wait for."""
        who = "a worker was lost"
        if error.rank is not None:
            name = self._task.name_of(ring.members[error.rank])
            who = "this worker failed" if error.rank == ring.rank else f"{name} was lost"
            if isinstance(error, PeerUnfit):
                who = f"{name} does not fit, and exits"
        count = f"all {ring.most or ring.size} workers"
        enough = " or enough of them (MIN_WORKERS)" if ring.most else ""
        waiting = f"{who}: waiting until {count}{enough} are here again"
        log.warning("%s (%s)", waiting, error)
        return waiting

    def _is_back(self, ring: RenewableRing, who: str, fit: Fit | None) -> str:
        """Leave the ring with all others, to let a worker join; return a text that names it."""
        waiting = f"{who} is back: it joins after step {fit.step if fit else 0}"
        log.info("%s", waiting)
        self.has_trained |= fit is not None and fit.has_trained
        with suppress(RingError):  # a worker was lost at the same time: all meet as well
            ring.barrier(what=LEAVING)
        return waiting

    def _tell_who_is_here(self, ring: RenewableRing) -> None:
        count = ring.most or ring.size
        names = [self._task.name_of(one) for one in range(count) if one not in ring.members]
        if not names:
            log.info("all %d workers are here again", count)
            return
        log.warning(
            "continuing with %d of %d workers (%s %s missing): each takes a larger share of the "
            "same batches",
            ring.size,
            count,
            listed(names),
            "is" if len(names) == 1 else "are",
        )


def explained(error: Exception) -> Exception:
    """Return the meaning of an error for this worker; see `of_newcomer`."""
    if not isinstance(error, OtherCall):
        return error
    ring = process_ring.current()  # a newcomer has raised it; otherwise this would wait for one
    return of_newcomer(ring, error) if isinstance(ring, RenewableRing) else error


@contextmanager
def explaining() -> Iterator[None]:
    """Raise the meaning of an error for this worker; see `of_newcomer`."""
    try:
        yield
    except OtherCall as error:
        raise explained(error) from error.__cause__


def of_newcomer(ring: RenewableRing, error: OtherCall) -> Exception:
    """Return the error that this worker should raise when two workers are in different calls.

    A worker in the ring notices that its neighbour is in a different call, and tells all others. A
    newcomer does so only if no other worker has; see Ring.doubt.

    Returns:
        one of these:

        - PeerUnfit: a newcomer does not fit, and this worker continues without it.
        - ConfigurationError: this worker is the newcomer that does not fit.
        - PeerLostError: it is unclear who does not fit. Restarted processes will show it.
        - the error itself: all workers began together, so the program is at fault.
    """
    seen_by = error.record.origin if error.record else ring.rank
    new = {one for one in (error.rank, seen_by) if one in ring.newcomers}
    if not new:
        if ring.began_together:
            return error
        differ = "workers that did not begin together are in different calls"
        return PeerLostError(f"{differ}: {error}")
    if ring.rank not in new:
        return PeerUnfit(str(error), min(new))
    if len(new) > 1:
        return PeerLostError(f"one of two new workers does not fit: {error}")
    are_several_others = ring.size - len(ring.newcomers) > 1
    if error.rank not in new and are_several_others:  # they may differ from each other
        return PeerLostError(f"this new worker or another one does not fit: {error}")
    log.error("this worker is new, and makes other calls than the others", exc_info=error)
    advice = "Does it have the same script and the same data?"
    return ConfigurationError(
        [Problem("the script", str(error), "the calls of the others, which continue", advice)]
    )
