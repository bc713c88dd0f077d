"""What the checkpoint callback tells the rest of the fit, and asks it."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from cluster_trainer.checkpoints.checkpoint import Stage
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.engine.replicas import statistics
from cluster_trainer.engine.replicas.metric_rows import MetricRows
from cluster_trainer.fits.kept.comparing import Comparison
from cluster_trainer.fits.kept.ended import ended_fits
from cluster_trainer.fits.kept.finding import Start
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.fits.kept.saved import Saved
from cluster_trainer.fits.kept.step_vote import Agreed, StepVote
from cluster_trainer.fits.shared.files import share_files
from cluster_trainer.problems import RehearsedError


@dataclass(frozen=True)
class Coordinator:
    """Fulfils `callbacks.checkpoint_callback.FitCoordinator` for one fit.

    Attributes:
        options: how the fit is kept.
        model: is trained.
        workers: this one and the others.
        start: where the fit begins, without its checkpoint's values.
        vote: on whether the fit ends after a call.
        saved: the newest checkpoint of this worker.
        callbacks: the user's, as this worker has them.
        variables: returns those of the model and its optimizers that exist by now.
        validates: whether there are validations, which an interruption should not repeat.
        seed: of the order of the examples.
        run_number: tells this run's checkpoints from another's; the same on all workers.
    """

    options: FitOptions
    model: keras.Model
    workers: Workers
    start: Start
    vote: StepVote
    saved: Saved
    callbacks: Sequence[Any]
    variables: Callable[[], Sequence[Any]]
    validates: bool
    seed: int
    run_number: int

    @property
    def described(self) -> Mapping[str, str]:
        """What else must be as it was for the fit to go on, name -> value."""
        return self.options.described

    @property
    def describes_data(self) -> bool:
        """Whether that tells how the data are cut, too."""
        return self.options.describes_data

    @property
    def cuts(self) -> Sequence[int]:
        """Steps at which a call has to end: a rehearsal has one step, however long a call is."""
        return (1,) if self.options.rehearses else self.options.cuts

    def check(self, described: Mapping[str, str], names: Sequence[str]) -> None:
        """Refuse workers that differ, and a checkpoint of another fit; all workers call it.

        Args:
            described: what of the fit must be as it was, with its data: name -> value.
            names: of the variables that exist.

        Raises:
            ConfigurationError: with everything that differs.
        """
        self._refuse_gone()
        comparison = Comparison(self.options, self.model, self.workers, self.start)
        comparison.refuse_others(described, names)
        if self.start.found:
            has_ended = self.start.place.stage == Stage.ALL
            (self.options.had_ended if has_ended else self.options.goes_on)()
        if not self.options.rehearses:
            self.options.begins()

    def _refuse_gone(self) -> None:
        """Refuse to train on from weights that are gone; note whose this fit makes useless.

        Raises:
            ConfigurationError: they are.
        """
        if not (self.start.every and self.options.name):
            return
        trained = self.variables()
        self.saved.outdated = ended_fits.outdated_by(self.options.name, trained)
        if self.start.found is None:
            ended_fits.refuse_gone(trained)

    def note_values(self, variables: Sequence[Any], gone: Container[int]) -> None:
        """Note that variables have the checkpoint's values, but for those at some places."""
        places = range(len(variables))
        ended_fits.note_restored(variables[index] for index in places if index not in gone)
        ended_fits.note_gone(self.options.name, [variables[one] for one in places if one in gone])

    def any(self, wish: bool, where: str = "the end of an epoch") -> bool:  # noqa: FBT001
        """Tell whether any worker wishes something there; all workers call it."""
        return max(self.workers.gather(int(wish), f"fit ({where})")) > 0

    def share_files(self) -> list[Any]:
        """Give all workers the files of ModelCheckpoint; return those whose file no worker has."""
        goes_on = self.start.found is not None
        return share_files(self.callbacks, self.workers, goes_on=goes_on)

    def stops(self) -> bool:
        """Tell whether the workers have agreed to stop here, for good or to go on with another."""
        return self.vote.agreed is not Agreed.GO_ON

    def meet(self) -> None:
        """End the fit if the workers have agreed to, or if this was all that was to be done.

        Raises:
            StopRequestedError, PeerStoppedError, WorkerIsBackError: see StepVote.
            RehearsedError: this was the one step of a rehearsal.
        """
        if self.options.rehearses and self.vote.agreed is not Agreed.STOP:
            self._rehearse_saving()
            raise RehearsedError
        self.vote.end_if_agreed()

    def _rehearse_saving(self) -> None:
        """Compile what an epoch's end and a checkpoint take from all workers."""
        statistics.average(self.model, self.model.distribute_strategy)
        if self.options.job.config.checkpoint_steps:
            MetricRows(self.model).take()
