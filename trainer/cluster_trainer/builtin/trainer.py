"""The built-in trainer as a program that calls `fit`; see fits/program.py."""

import inspect
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import keras

from cluster_trainer.builtin import predictions
from cluster_trainer.builtin.run import Run, facts_of
from cluster_trainer.callbacks.recording.tensorboard import FOLDER
from cluster_trainer.checkpoints.checkpoint import Place
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.data.examples import Examples
from cluster_trainer.engine.running import Order
from cluster_trainer.fits.identity import moved_aside, renumbered
from cluster_trainer.fits.identity.leftovers import Leftovers
from cluster_trainer.fits.kept.consistency_check import refuse_differing
from cluster_trainer.fits.kept.kept_fit import CHECKPOINTS, KeptFit
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.fits.program import FitRequest, Program, options_of
from cluster_trainer.fits.records import Records, callbacks_of
from cluster_trainer.fits.start_text import start_of
from cluster_trainer.results import done, export, metrics_file
from cluster_trainer.results.on_screen.progress import Progress
from cluster_trainer.results.on_screen.report import Reporter
from cluster_trainer.settings.job import Job

OF_A_RUN = (
    CHECKPOINTS,
    FOLDER,
    metrics_file.FILE,
    predictions.FILE,
    export.KERAS_FILE,
    export.SAVED_MODEL,
    done.FILE,
)
"""The files of a run in a worker's folder, except its journal and its log, which continue."""
log = logging.getLogger("trainer")


@dataclass
class Trainer(Program):
    """The program of one run, which calls one fit.

    A run continues after its fit, with the trained model. So the run, and not the fit, handles
    errors and ends the process.

    Attributes:
        run: the run to train.
        described: all facts that must be unchanged when the run resumes: name -> value.
        reporter: gets the run's progress.
        one_fit: the fit; None: it was not called yet.
    """

    run: Run
    described: Mapping[str, str]
    reporter: Reporter
    one_fit: "TrainersFit | None" = None

    @property
    def place(self) -> Place:
        """The place of its fit, or its last place."""
        return self.one_fit.place if self.one_fit else Place()

    def request(self, given: inspect.BoundArguments) -> "TrainersFit":
        """Return the trainer's requests for its fit; see Program."""
        del given
        self.one_fit = TrainersFit(self, Leftovers(self.run.job))
        return self.one_fit

    def waits(self, waiting: str) -> None:
        """Note that the fit waits for other workers."""
        self.reporter.doing(waiting)
        self.journal.note("waiting", waiting)

    def tell(self, progress: Progress) -> None:
        """Show the fit's progress."""
        self.reporter.progress(progress)

    def failed(self, error: BaseException) -> None:
        """Note how far the fit came; the caller of the run handles the error."""
        del error
        if step := self.place.step:  # 0 if another attempt has not found its place yet
            self.reporter.step(step)

    def ended(self, workers: Workers) -> None:
        """Note how far the fit came; the model is still to be saved."""
        del workers
        self.reporter.step(self.place.step)


@dataclass
class TrainersFit(FitRequest):
    """The trainer's requests for its fit.

    Attributes:
        trainer: the trainer that has called it.
        beginning: tells whether an earlier run's files still have to be moved aside.
    """

    trainer: Trainer
    beginning: Leftovers

    @cached_property
    def _facts(self) -> dict[str, str]:
        run = self.trainer.run
        return facts_of(run.job.config, run.data, self.trainer.described)

    def order(self) -> Order:
        """Return the order and the calls that the settings require; see FitRequest."""
        config = self.trainer.run.job.config
        steps = None if config.steps_per_call == "auto" else config.steps_per_call
        return Order(config.seed, steps, goes_on=True)

    def agree(self, workers: Workers, *, is_again: bool) -> None:
        """Compare settings and data, and move an unwanted run aside; see FitRequest."""
        job = self.trainer.run.job
        if is_again:
            self.trainer.job = replace(self.trainer.job, is_restart=True)
        refuse_differing(workers, job.task, self._facts)
        _prepare_folder(job, workers, self.beginning)

    def options(self) -> FitOptions:
        """Return the options of the saved fit; see FitRequest."""
        trainer, run, job = self.trainer, self.trainer.run, self.trainer.job
        return options_of(
            trainer,
            job.folder,
            trainer.described,
            describes_data=run.data.has_examples,
            must_resume=job.config.resume == "must",
            cuts=job.config.profile_cuts,
            examples_at=run.plan.examples_at if run.plan.counts_examples else None,
            found=self._found,
            records=self._records,
            must_record=True,
        )

    def options_of_rehearsal(self) -> FitOptions:
        """Return the options for the first step without the other workers; see FitRequest."""
        self.trainer.reporter.doing("compiling the steps")
        return self.options()

    def _found(self, kept: KeptFit) -> None:
        """Note the step at which the fit begins, and that the steps are compiled next."""
        reporter = self.trainer.reporter
        reporter.begin(kept.place.step)
        reporter.doing("compiling the steps")
        reporter.journal.note("starting", f"compiling the steps; {kept.beginning}")

    def _records(self, kept: KeptFit) -> list[keras.callbacks.Callback]:
        """Return the callbacks that record the fit, in the worker's own folder."""
        trainer, run, job = self.trainer, self.trainer.run, self.trainer.job
        records = Records(
            job=job,
            folder=job.folder,
            book=trainer.journal,
            report=trainer.reporter.epochs,
            start=lambda: start_of(job, run.model, kept.beginning),
            examples_at=run.plan.examples_at if run.plan.counts_examples else None,
            test_examples=len(run.data.test) if isinstance(run.data.test, Examples) else None,
        )
        return callbacks_of(records, run.model, kept)


def _prepare_folder(job: Job, workers: Workers, beginning: Leftovers) -> None:
    """Prepare a worker's folder for its run; all workers call this.

    Files of an earlier run are moved aside if this run is to start over, which a restart after a
    crash, or after the loss of another worker, does not. A run whose workers had other numbers is
    continued; see `renumbered`.
    """
    moved_aside.finish(job.folder)
    may_take = not beginning.is_over and job.config.resume != "never"
    renumbered.take_over(job, workers, _names_in, may_take=may_take)
    if job.config.resume == "never" and not beginning.is_over:
        began = min((one.stat().st_mtime for one in job.folder.glob("*")), default=time.time())
        place = moved_aside.move_aside(job.folder, OF_A_RUN, job.config.model, began)
        if place:
            log.info("the files of an earlier run in %s are now in %s", job.folder, place)
            moved_aside.keep_newest(job.folder, job.config.keep_earlier)
        beginning.end()


def _names_in(folder: Path) -> list[str]:
    return [name for name in OF_A_RUN if (folder / name).exists()]
