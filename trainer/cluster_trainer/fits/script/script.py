"""A user's script: the state that all of its fits in this process share."""

import atexit
import inspect
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cluster_trainer.collectives.workers import Workers
from cluster_trainer.distribution.ring import warn_of_all_workers
from cluster_trainer.fits.elastic_recovery import explained
from cluster_trainer.fits.identity import end_mark
from cluster_trainer.fits.identity.leftovers import Leftovers
from cluster_trainer.fits.identity.owner import Owner
from cluster_trainer.fits.identity.saved_fits import Fits, weights_of
from cluster_trainer.fits.program import Outcome, Program
from cluster_trainer.fits.script.earlier_runs import begin_anew
from cluster_trainer.fits.script.end import meets_the_others, stalled
from cluster_trainer.fits.script.one_fit import ScriptFit, Stage, fit_of
from cluster_trainer.problems import StopRequestedError
from cluster_trainer.process.exit_code import end_by, status_of
from cluster_trainer.process.last_call import LastCall
from cluster_trainer.results.on_screen.progress import Progress
from cluster_trainer.results.on_screen.report import Onlooker

log = logging.getLogger("trainer")


@dataclass
class Script(Program):
    """A user's script that calls Keras's own `fit`.

    Attributes:
        environ: the environment, with the entrypoint's variables.
        before: the folder's earlier owner; None: none is known.
        numbers: counts its fits in this process, from 0.
        fits: the fits of this process, and those that are saved in the worker's folder.
        beginning: tells whether an earlier run's files still have to be moved aside.
        last: waits for the other workers at the end.
        onlooker: shows a fit's progress.
        stage: the progress of the script.
        outcome: how it would end if it ended now.
        has_passed: whether a fit had ended in an earlier start, and was not run again.
        pid: the id of the process that began the script; processes forked from it differ.
        choosing: a lock, held while a fit chooses its folder, so that each thread gets another one.
    """

    environ: Mapping[str, str]
    before: Owner | None
    numbers: Iterator[int]
    fits: Fits
    beginning: Leftovers
    last: LastCall
    onlooker: Onlooker
    stage: Stage = Stage.NEW
    outcome: Outcome = Outcome.WELL
    has_passed: bool = False
    pid: int = field(default_factory=os.getpid)
    choosing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def records(self) -> bool:
        """Whether this process records fits: not without checkpoints, nor if it was forked."""
        return self.pid == os.getpid() and self.keeps

    @property
    def keeps(self) -> bool:
        """Whether its fits have checkpoints."""
        return bool(self.job.config.checkpoint_steps)

    def note(self, state: str, detail: str = "") -> None:
        """Note the script's activity in the journal, if this process records fits."""
        if self.records:
            self.journal.note(state, detail)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Handle stops with signal handlers, and end the process if it stalls."""
        if self.keeps:  # while a fit runs, an end of the script is not a valid one
            end_mark.await_nothing(self.job.folder)
        with self.stop.handled(), self.deadline.kept(lambda: stalled(self._tell_the_last)):
            yield

    def request(self, given: inspect.BoundArguments) -> ScriptFit:
        """Return the script's requests for a fit that it has called; see Program."""
        model = given.args[0]
        are_gone = self.fits_ended.are_gone(model.variables)
        began = None if are_gone else weights_of(model)
        called = self.fits.call(began, inspect.currentframe())
        return fit_of(self, next(self.numbers), given, called)

    def agree(self, workers: Workers, *, is_again: bool, has_ring: bool) -> None:
        """Agree with the other workers where the script resumes; see FitRequest.agree."""
        if is_again:
            self.job = replace(self.job, is_restart=True)
        is_new = self.stage is Stage.NEW
        if is_again or is_new:
            begin_anew(self.job, workers, self.beginning, self.before, self.environ)
            self.stage = Stage.AGREED
        if is_new:
            if self.job.may_be_fewer and not has_ring:
                warn_of_all_workers()
            atexit.register(self._note_end, workers)
        if self.stage is Stage.AGREED and self.records:
            self.journal.take_over(self.job.events_file)

    def waits(self, waiting: str) -> None:
        """Note that a fit waits for other workers."""
        self.look_away()
        self.note("waiting", waiting)

    def tell(self, progress: Progress) -> None:
        """Show a fit's progress."""
        self.onlooker.progress(progress)

    def failed(self, error: BaseException) -> None:
        """End the process as the trainer would, unless the error is the script's own."""
        self.outcome = self.outcome.after(error)
        if isinstance(error, Exception):
            error = explained(error)
            if isinstance(error, StopRequestedError):
                self.stop.call_scripts_handler()
            end_by(error, self.job.task.num_workers, self._tell_the_last)

    def ended(self, workers: Workers) -> None:
        """Note that a fit has ended well; an exit with code 0 would be the script's valid end."""
        self.outcome = self.outcome.after(None)
        if self.keeps and self.outcome is Outcome.WELL:
            end_mark.await_end(self.job.folder, workers, self.environ)
        if self.stop.signal_number:  # it came too late to interrupt this fit
            os.kill(os.getpid(), self.stop.signal_number)

    def _tell_the_last(self, code: int, reason: str | None) -> None:
        self.look_away()
        self.note(status_of(code), reason or "")

    def _note_end(self, workers: Workers) -> None:
        """At the script's end, wait for the other workers, and mark the end if it is a valid one.

        A script that fails leaves at once: the others may wait for it in the middle of a step.
        """
        if self.pid != os.getpid():
            return
        has_failed = self.outcome is not Outcome.WELL
        if not meets_the_others(workers, self.last, has_failed=has_failed):
            self.note("failed", "the script did not end well")
            return
        self.note("done", "the script has ended")
        if self.keeps:
            end_mark.mark(self.job.folder, workers, self.environ)
