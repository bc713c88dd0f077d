"""The workers' vote between calls of TensorFlow: a fit continues, stops, or lets a worker rejoin.

They vote after each call of the fit and its validations. If calls have a fixed number of steps,
several calls may pass between two votes: see `engine/steps_per_call.py`.
"""

import logging
import signal
from collections.abc import Callable
from enum import Enum

from cluster_trainer.checkpoints.checkpoint import Place
from cluster_trainer.collectives.neighbours import VARIABLE, who_waits
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.fits.network_watch import NetworkWatch
from cluster_trainer.fits.straggler_watch import StragglerWatch
from cluster_trainer.problems import (
    PeerStoppedError,
    StopRequestedError,
    WorkerIsBackError,
    listed,
)

log = logging.getLogger("trainer")


class Agreed(Enum):
    """The action on which all workers have agreed after a call."""

    GO_ON = "train on"
    STOP = "save a checkpoint and end, because one of them was asked to"
    TAKE_IN = "save a checkpoint and continue with a worker that is back"

    @classmethod
    def of(cls, signal_number: float, takes_in: float) -> "Agreed":
        """Return the agreed action.

        Args:
            signal_number: the largest number of a signal that any worker has received; 0: none.
            takes_in: 1 if any worker knows of a worker that is back, else 0.
        """
        if signal_number:
            return cls.STOP
        return cls.TAKE_IN if takes_in else cls.GO_ON


class StepVote:
    """The vote of all workers, in the exchange that also compares the duration of their calls.

    Args:
        options: the options of the saved fit.
        workers: the workers that train together.
        stragglers: finds the workers that hold the others up.
        network: compares how long the workers wait for sums.
        place: returns the fit's place.
        begins_again: tells whether this process can resume from an earlier checkpoint.

    Attributes:
        agreed: the result of the last vote.
    """

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        options: FitOptions,
        workers: Workers,
        stragglers: StragglerWatch,
        network: NetworkWatch,
        place: Callable[[], Place],
        begins_again: Callable[[], bool],
    ) -> None:
        self._options, self._workers, self._stragglers = options, workers, stragglers
        self._network = network
        self._place, self._begins_again = place, begins_again
        self._first_epoch: int | None = None
        self._waiting: tuple[str, ...] = ()
        self.agreed = Agreed.GO_ON

    def begin(self) -> None:
        """Note the epoch with which the fit begins."""
        self._first_epoch = self._place().epoch

    def agree(self, seconds: float) -> float:
        """Vote with the other workers, and note the result; all workers call this.

        Args:
            seconds: the duration of this worker's calls since the last vote.

        Returns:
            the slowest worker's seconds.
        """
        number = float(self._options.stop.signal_number)
        mine = [seconds, number, float(self._is_to_take_in())]
        told = self._workers.largest(
            [*mine, *self._network.mine(), *self._stragglers.mine()], "fit (after a call)"
        )
        slowest, number, takes_in, *told = told
        self.agreed = Agreed.of(number, takes_in)
        if self._first_epoch is not None and self._place().epoch > self._first_epoch:
            self._workers.trust_newcomers()  # an epoch is over, with its validation
        self._network.take(slowest, told[:2])
        self._stragglers.take(told[2:])
        return slowest

    def end_if_agreed(self) -> None:
        """End the fit if the workers have agreed to; all workers call this, after saving.

        Raises:
            StopRequestedError: this worker was asked to stop.
            PeerStoppedError: another worker was asked to stop.
            KeyboardInterrupt: this worker is alone, and got Ctrl-C, which its script may handle.
            WorkerIsBackError: another worker is to rejoin.
        """
        if self.agreed is Agreed.TAKE_IN:
            raise WorkerIsBackError(listed(self._waiting) if self._waiting else "a worker")
        if self.agreed is Agreed.STOP:
            self._stop()

    def _stop(self) -> None:
        stop = self._options.stop
        raises = self._options.interrupts and not stop.has_scripts_handler
        is_alone = self._options.job.task.num_workers == 1
        if raises and is_alone and stop.signal_number == signal.SIGINT:
            stop.signal_number = 0
            raise KeyboardInterrupt  # as everywhere in Python: the script may handle it
        if stop.signal_number:
            raise StopRequestedError(stop.signal_number)
        raise PeerStoppedError

    def _is_to_take_in(self) -> bool:
        """Tell whether a missing worker waits to rejoin, and can; only worker 0 asks for this."""
        job = self._options.job
        are_missing = 1 < self._workers.count < job.task.num_workers
        if not (are_missing and job.group_socket and self._workers.rank == 0):
            return False
        news = who_waits({VARIABLE: job.group_socket})
        waiting = self._waiting if news is None else news
        can_be = self._options.may_take_in and self._begins_again()
        if waiting and waiting != self._waiting and not can_be:
            log.warning(
                "%s is back and has to wait: only a fit that could begin again in this process is "
                "interrupted (docs/explanation/survival.md)",
                listed(waiting),
            )
        self._waiting = waiting
        return bool(waiting) and can_be
