"""Connects the checkpoint callback with the rest of the fit."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from cluster_trainer.checkpoints.checkpoint import Stage
from cluster_trainer.checkpoints.saver import touch
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.engine.replicas import statistics
from cluster_trainer.engine.replicas.metrics.saved_rows import MetricRows
from cluster_trainer.fits.kept.consistency_check import refuse_others
from cluster_trainer.fits.kept.ended_fits import EndedFit
from cluster_trainer.fits.kept.finding import Start
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.fits.kept.round_choice import RoundChoice
from cluster_trainer.fits.kept.step_vote import Agreed, StepVote
from cluster_trainer.fits.shared.files import ChiefsFiles
from cluster_trainer.problems import RehearsedError

NONE = -1


class Saved:
    """The newest checkpoint of one fit that this worker has written.

    Args:
        options: the options of the saved fit.

    Attributes:
        furthest: the number of the furthest checkpoint that any worker had.
        outdated: finished fits whose weights are not needed once this fit has a checkpoint.
    """

    def __init__(self, options: FitOptions) -> None:
        self._options = options
        self._at = 0.0
        self.furthest = NONE
        self.outdated: Sequence[EndedFit] = ()

    def note(self, number: int) -> None:
        """Note that the checkpoint with this number was written."""
        self._options.ended.remove_weights(self.outdated, self._options.name)
        self.outdated = ()
        self._at = time.monotonic()
        # A finished fit is saved again at each start, which is not progress: the script may fail.
        if self._options.job.progress_file and number > self.furthest:
            touch(self._options.job.progress_file)
        self.furthest = max(self.furthest, number)

    def told(self, newest: int | None) -> dict[str, Any]:
        """Return the newest checkpoint's step and time for `status`; {} if there is none."""
        return {} if newest is None else {"checkpoint_step": newest, "checkpoint_at": self._at}


@dataclass(frozen=True)
class Coordinator:
    """Connects the checkpoint callback with the rest of the fit.

    Attributes:
        options: the options of the saved fit.
        model: the model to train.
        workers: the workers that train together.
        start: the beginning of the fit, without its checkpoint's values.
        vote: the vote on whether the fit ends after a call.
        saved: the newest checkpoint of this worker.
        files: copies the files that the user's callbacks write on the chief.
        variables: returns the existing variables of the model and its optimizers.
        validates: whether the fit has validations; then it saves before each of them.
        seed: the seed of the examples' order.
        run_number: the number that identifies this run's checkpoints; the same on all workers.
        rounds: chooses how many steps each worker takes by itself.
        asked: arguments that workers need alike, but that may change when a fit resumes: name ->
            value.
    """

    options: FitOptions
    model: keras.Model
    workers: Workers
    start: Start
    vote: StepVote
    saved: Saved
    files: ChiefsFiles
    variables: Callable[[], Sequence[Any]]
    validates: bool
    seed: int
    run_number: int
    rounds: RoundChoice
    asked: Mapping[str, str]

    @property
    def cuts(self) -> Sequence[int]:
        """The steps at which a call must end; a rehearsal has a single step."""
        return (1,) if self.options.rehearses else self.options.cuts

    def check(self, described: Mapping[str, str], names: Sequence[str]) -> None:
        """Refuse workers that differ, and a checkpoint of another fit; all workers call this.

        Args:
            described: all facts about the fit and its data that must be unchanged: name -> value.
            names: the names of the existing variables.

        Raises:
            ConfigurationError: facts differ, or the model's weights are gone.
        """
        options, start = self.options, self.start
        if start.every and options.name:
            self._look_at_ended_fits()
        refuse_others(options, self.model, self.workers, start, described, names, self.asked)
        if start.found:
            has_ended = start.place.stage == Stage.ALL
            (options.had_ended if has_ended else options.goes_on)()
        if not options.rehearses:
            options.begins()

    def _look_at_ended_fits(self) -> None:
        """Refuse to train from removed weights; note which weights this fit makes obsolete."""
        options, trained = self.options, self.variables()
        self.saved.outdated = options.ended.outdated_by(options.name, trained, self.workers)
        if self.start.found is None:
            options.ended.refuse_gone(trained)

    def note_values(self, variables: list[Any], gone: Collection[int]) -> None:
        """Note that variables have the checkpoint's values, except at the positions in `gone`."""
        self.options.ended.note_values(self.options.name, variables, gone)

    def any(self, wish: bool, where: str = "the end of an epoch") -> bool:  # noqa: FBT001
        """Tell whether any worker's `wish` is true; all workers call this, at the same place."""
        return max(self.workers.gather(int(wish), f"fit ({where})")) > 0

    def stops(self) -> bool:
        """Tell whether the workers have agreed to stop here, for good or to let one rejoin."""
        return self.vote.agreed is not Agreed.GO_ON

    def meet(self) -> None:
        """End the fit if the workers have agreed to end it, or if this was a rehearsal.

        Raises:
            StopRequestedError, PeerStoppedError, WorkerIsBackError: see StepVote.
            RehearsedError: this was the one step of a rehearsal.
        """
        if self.options.rehearses and self.vote.agreed is not Agreed.STOP:
            self._rehearse_saving()
            raise RehearsedError
        self.vote.end_if_agreed()

    def _rehearse_saving(self) -> None:
        """Compile the code that an epoch's end and a checkpoint need on all workers."""
        statistics.average(self.model, self.model.distribute_strategy)
        if self.options.job.config.checkpoint_steps:
            MetricRows(self.model).take()
