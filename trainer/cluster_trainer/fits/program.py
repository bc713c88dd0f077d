"""The interface between a `fit` and the program that calls it: a script or the built-in trainer."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from cluster_trainer.checkpoints.checkpoint import Place
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.engine.running import Order
from cluster_trainer.fits.kept.consistency_check import rounds_described
from cluster_trainer.fits.kept.ended_fits import EndedFits
from cluster_trainer.fits.kept.kept_fit import CHECKPOINTS, KeptFit
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.process.network_limit import NetworkLimit
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results.journal import Journal
from cluster_trainer.results.on_screen.progress import LiveFile, Progress
from cluster_trainer.settings.job import Job


class Outcome(Enum):
    """How a script would end if it ended now."""

    WELL = "a valid end: all its calls ended well, or it has handled those that did not"
    FAILED = "no valid end: its last call did not end well"
    INTERRUPTED = "no valid end: a fit was interrupted, for example by Ctrl-C, and may resume later"

    def after(self, error: BaseException | None) -> "Outcome":
        """Return the outcome after another call, which has ended with `error`, or well (None)."""
        if self is Outcome.INTERRUPTED or isinstance(error, KeyboardInterrupt):
            return Outcome.INTERRUPTED
        return Outcome.FAILED if error else Outcome.WELL


@dataclass
class Program(ABC):
    """A program that calls `fit`.

    Attributes:
        job: the settings, and this worker's task.
        stop: tells whether this process was asked to stop.
        deadline: the time by which a call of TensorFlow must be over.
        journal: this worker's events.jsonl.
        fits_ended: the finished fits of the process.
        network: notes how long the workers waited for sums, for all fits of the process.
    """

    job: Job
    stop: StopRequest
    deadline: Deadline
    journal: Journal
    fits_ended: EndedFits
    network: NetworkLimit

    def guarded(self) -> AbstractContextManager[None]:
        """Handle stops and stalls while a fit runs, unless the program always does so."""
        return nullcontext()

    @abstractmethod
    def request(self, given: inspect.BoundArguments) -> "FitRequest":
        """Return the program's requests for a fit that it has called with these arguments."""

    @abstractmethod
    def waits(self, waiting: str) -> None:
        """Note that the fit waits; `waiting` names the other workers it waits for."""

    @abstractmethod
    def tell(self, progress: Progress) -> None:
        """Show the fit's progress."""

    @abstractmethod
    def failed(self, error: BaseException) -> None:
        """Note the error that has ended a fit; end the process unless it is the program's own.

        Raises:
            SystemExit: the process should end, and no peer waits for its end.
        """

    @abstractmethod
    def ended(self, workers: Workers) -> None:
        """Note that a fit has ended well, on this worker and on the others."""

    def look_away(self) -> None:
        """Remove the file that shows the fit's progress."""
        LiveFile(self.job.live_file).remove()


class FitRequest(ABC):
    """A program's requests for one fit. Each of a program's threads may run its own fit.

    Attributes:
        kept: the fit while it runs, or waits for other workers; None: it does neither.
    """

    kept: KeptFit | None = None
    _ended_at = Place()

    @property
    def place(self) -> Place:
        """The fit's place, or its last one if it does not run."""
        return self.kept.place if self.kept else self._ended_at

    def let_go(self) -> None:
        """Release the fit, which will write nothing more."""
        if self.kept:
            self.kept.close()
            self._ended_at = self.kept.place
        self.kept = None

    @abstractmethod
    def order(self) -> Order:
        """Return the order of the fit's examples, and its division into calls; called once."""

    @abstractmethod
    def agree(self, workers: Workers, *, is_again: bool) -> None:
        """Agree with the other workers on the training, and on its folder; all workers call this.

        Args:
            workers: the workers that train together.
            is_again: whether the fit has begun before, in this process or on the others.

        Raises:
            ConfigurationError: the workers differ, or the folder belongs to another program.
        """

    @abstractmethod
    def options(self) -> FitOptions:
        """Return the options of the saved fit, after all workers have agreed."""

    @abstractmethod
    def options_of_rehearsal(self) -> FitOptions:
        """Return the options for its first step without the other workers."""


def options_of(
    program: Program, folder: Path, described: Mapping[str, str], **more: Any
) -> FitOptions:
    """Return the options of a program's fit.

    Args:
        program: the program that has called the fit.
        folder: the fit's own folder.
        described: all facts that must be unchanged when the fit resumes: name -> value.
        more: further members of FitOptions.
    """
    return FitOptions(
        program.job,
        program.stop,
        program.deadline,
        folder / CHECKPOINTS,
        {**described, **rounds_described()},
        ended=program.fits_ended,
        network=program.network,
        tell=program.tell,
        **more,
    )
