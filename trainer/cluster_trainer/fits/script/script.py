"""A user's script: what all of its fits in this process share."""

import atexit
import inspect
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum

from cluster_trainer.collectives.workers import Workers
from cluster_trainer.distribution.ring import warn_of_all_workers
from cluster_trainer.fits.identity import ending
from cluster_trainer.fits.identity.beginning import Beginning
from cluster_trainer.fits.identity.fits import Fits
from cluster_trainer.fits.identity.owner import Lock, Owner
from cluster_trainer.fits.lost_worker import explained
from cluster_trainer.fits.program import Outcome, Program
from cluster_trainer.fits.script.aside import begin_anew
from cluster_trainer.fits.script.end import meets_the_others, stalled
from cluster_trainer.fits.script.one_fit import ScriptFit
from cluster_trainer.problems import StopRequestedError
from cluster_trainer.process.last_call import LastCall
from cluster_trainer.process.lifecycle import end_by, status_of
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results.journal import Journal
from cluster_trainer.settings.job import Job

log = logging.getLogger("trainer")


class Stage(Enum):
    """How far a script has come in this process."""

    NEW = "no fit of it has met the other workers"
    AGREED = "all have agreed on where it goes on; no fit was recorded since"
    RECORDED = "a fit was recorded since"


@dataclass(frozen=True)
class Taken:
    """The worker's folder, taken by this process.

    Attributes:
        before: whose it was before; None: nobody's, as far as is known.
        lock: of it.
    """

    before: Owner | None = None
    lock: Lock = field(default_factory=Lock)


class Script(Program):
    """A user's script that calls Keras's own `fit`.

    Args:
        job: the settings, and which worker this is.
        stop: whether this process was asked to stop.
        environ: what the entrypoint sets.
        taken: the worker's folder.
        numbers: of its fits in this process.

    Attributes:
        fits: this process's, and those that are kept in the worker's folder.
        stage: how far it has come.
        outcome: what its end would be that came now.
        has_passed: whether a fit had ended in an earlier start, and was not run again.
        pid: this process's, and not that of one that it has forked off.
        choosing: held while a fit chooses its folder; those of other threads choose another.
    """

    def __init__(
        self,
        job: Job,
        stop: StopRequest,
        environ: Mapping[str, str],
        taken: Taken,
        numbers: Iterator[int],
    ) -> None:
        super().__init__(job, stop, Deadline(), Journal(job.folder))
        self.environ, self._taken, self._numbers = environ, taken, numbers
        self._beginning, self._last = Beginning(job), LastCall()
        self.fits = Fits(job.folder, keeps=self.keeps)
        self.stage, self.outcome, self.has_passed = Stage.NEW, Outcome.WELL, False
        self.pid, self.choosing = os.getpid(), threading.Lock()

    @property
    def records(self) -> bool:
        """Whether anything is recorded: not where nothing is kept, nor by a forked process."""
        return self.pid == os.getpid() and self.keeps

    @property
    def keeps(self) -> bool:
        """Whether its fits have checkpoints."""
        return bool(self.job.config.checkpoint_steps)

    def note(self, state: str, detail: str = "") -> None:
        """Note what the script is at, if anything is recorded."""
        if self.records:
            self.journal.note(state, detail)

    def begins(self) -> None:
        """Let an end that comes now be no end of the script: a fit has not ended well."""
        if self.keeps:
            ending.await_nothing(self.job.folder)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Hear stops by handlers, and end what is stuck: nobody watches this process."""
        with self.stop.handled(), self.deadline.kept(lambda: stalled(self._tell_the_last)):
            yield

    def asked(self, given: inspect.BoundArguments) -> ScriptFit:
        """Return what it asks of a fit that it has called; see Program."""
        called = self.fits.call(given.args[0], inspect.currentframe())
        return ScriptFit(self, next(self._numbers), given, called)

    def agree(self, workers: Workers, *, is_again: bool, has_ring: bool) -> None:
        """Agree with the other workers on where the script goes on; see Asked.agree."""
        if is_again:
            self.job = replace(self.job, is_restart=True)
        if is_again or self.stage is Stage.NEW:
            begin_anew(self.job, workers, self._beginning, self._taken.before, self.environ)
        if self.stage is Stage.NEW:
            if self.job.may_be_fewer and not has_ring:
                warn_of_all_workers()
            atexit.register(self._note_end, workers)
        if is_again or self.stage is Stage.NEW:
            self.stage = Stage.AGREED
        if self.stage is Stage.AGREED and self.records:
            self.journal.take_over(self.job.events_file)

    @property
    def is_recorded(self) -> bool:
        """Whether a fit was recorded since all have agreed: that tells what came before."""
        return self.stage is Stage.RECORDED

    def has_recorded(self) -> None:
        """Note that a fit is recorded from here on."""
        self.stage = Stage.RECORDED

    def waits(self, waiting: str) -> None:
        """Note that a fit waits for other workers."""
        self.look_away()
        self.note("waiting", waiting)

    def failed(self, error: BaseException) -> None:
        """End the process as the trainer would, unless the error is the script's own affair."""
        self.outcome = self.outcome.after(error)
        if isinstance(error, Exception):
            error = explained(error)
            if isinstance(error, StopRequestedError):
                self.stop.call_scripts_handler()
            end_by(error, self.job.task.num_workers, self._tell_the_last)

    def ended(self, workers: Workers) -> None:
        """Note that a fit has ended well: with code 0 the script would have ended, too."""
        self.outcome = self.outcome.after(None)
        if self.keeps and self.outcome is Outcome.WELL:
            ending.await_end(self.job.folder, workers, self.environ)
        if self.stop.signal_number:  # too late for this fit to end by it
            os.kill(os.getpid(), self.stop.signal_number)

    def _tell_the_last(self, code: int, reason: str | None) -> None:
        """Note with what code the process ends, and why."""
        self.look_away()
        self.note(status_of(code), reason or "")

    def _note_end(self, workers: Workers) -> None:
        """Mark the end of a script that ends well, and let no worker leave before the others.

        One that fails leaves at once: the others may wait for it in the middle of a step.
        """
        if self.pid != os.getpid():
            return
        has_failed = self.outcome is not Outcome.WELL
        if not meets_the_others(workers, self._last, has_failed=has_failed):
            self.note("failed", "the script did not end well")
            return
        self.note("done", "the script has ended")
        if self.keeps:
            ending.mark(self.job.folder, workers, self.environ)
