"""A run and its checkpoints: from the newest of them to the end."""

import logging
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from cluster_trainer import done, record, weights
from cluster_trainer.agreement import facts_of, refuse_differing
from cluster_trainer.batches import make_batches
from cluster_trainer.checkpoints.checkpoint import Checkpoint
from cluster_trainer.checkpoints.resume import Found, find_newest, keep, refuse_other_run
from cluster_trainer.checkpoints.saver import Saver, touch
from cluster_trainer.checkpoints.state import State
from cluster_trainer.checkpoints.store import Store
from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.config import TrainerConfig, shown_name, variable_of
from cluster_trainer.data.examples import DataSet
from cluster_trainer.epochs import Epochs, Plan
from cluster_trainer.job import Job
from cluster_trainer.loop import Loop
from cluster_trainer.pace import Pace
from cluster_trainer.position import Position
from cluster_trainer.problems import (
    ConfigurationError,
    PeerStoppedError,
    Problem,
    StopRequestedError,
)
from cluster_trainer.report import EpochMetrics, Reporter

CHECKPOINTS = "checkpoints"
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Completed:
    """What a run has come to.

    Attributes:
        weights: the model's, in its own order.
        epochs: every epoch's metrics, those of earlier starts too.
        first_step: where this start began.
    """

    weights: list[np.ndarray]
    epochs: tuple[EpochMetrics, ...]
    first_step: int


class Run:
    """A run's checkpoints: where it goes on from, and what it keeps of itself.

    Args:
        job: what this process was started to do.
        plan: how the data are cut into steps and epochs.
        data: what is trained on.
        loop: the model, the optimizer and the compiled steps.
        own: the parts of `record.of` that a script has given, for the workers to compare.

    Attributes:
        plan: how the data are cut into steps and epochs.
        loop: the model, the optimizer and the compiled steps.
    """

    def __init__(
        self, job: Job, plan: Plan, data: DataSet, loop: Loop, own: Collection[str] = ()
    ) -> None:
        self._own = own
        self.plan, self.loop = plan, loop
        self._job, self._data = job, data
        self._state = State([*loop.model.variables, *loop.optimizer.variables])
        self._store = Store(job.folder / CHECKPOINTS)
        self._saver = Saver(self._store, self._note_saved)
        self._settings = settings_of(job.config, data, plan)

    def find_position(self, workers: Workers) -> Position:
        """Put all workers where the newest checkpoint of any of them is; return where that is.

        Raises:
            ConfigurationError: it is one of another run, or has to be there and is not.
        """
        self._store.tidy()
        # A crash is no wish to begin anew.
        if self._job.config.resume == "never" and not self._job.is_restart:
            done.remove_mark(self._job)
            self._store.clear()
        found = find_newest(self._store, workers, self._job.task)
        if found is None:
            refuse_beginning(self._job.config)
            log.info("no checkpoint on any worker: starting at step 0")
            return Position()
        return self._go_on_from(found)

    def _go_on_from(self, found: Found) -> Position:
        refuse_other_run(found, self._settings, self._state.names)
        keep(found, self._store)
        saved = found.checkpoint
        with self.loop.strategy.scope():
            self._state.put_back(saved.arrays)
        log.info("resuming from step %d held by %s", saved.step, found.holder)
        return Position.from_json(saved.step, saved.progress)

    def complete(self, pace: Pace, reporter: Reporter) -> Completed:
        """Train from the newest checkpoint, or from the start, to the end."""
        config, strategy = self._job.config, self.loop.strategy
        workers = Workers(strategy, Replicas.of(strategy))
        used = record.of(self.loop)
        reporter.used(used)
        log.info("optimizer %s, loss %s", used["optimizer"]["class_name"], used["loss"])
        own = {f"the {name}": record.as_text(used[name]) for name in self._own}
        facts = facts_of(config, self._data, self._settings | own)
        refuse_differing(workers, self._job.task, facts)
        position = self.find_position(workers)
        reporter.begin(position.step, position.epochs)
        batches = make_batches(strategy, self._data, self.plan.cut, config, position.step)
        epochs = Epochs(self.plan, self.loop, pace, batches, reporter)
        self.train(epochs, position, reporter)
        self.loop.finish()
        values = weights.values_of(self.loop.model)
        reporter.weights(weights.digest(values))
        return Completed(values, epochs.position.epochs, position.step)

    def train(self, epochs: Epochs, position: Position, reporter: Reporter) -> None:
        """Go through the epochs; whatever ends them, leave no checkpoint half written."""
        try:
            for metrics in epochs.go_on(position, self.save):
                reporter.epoch(metrics)
        except (StopRequestedError, PeerStoppedError):
            self._saver.wait()
            if self._saver.newest is not None:
                log.info("saved the checkpoint of step %d", self._saver.newest)
            raise
        finally:
            self._saver.wait()

    def save(self, position: Position) -> None:
        """Keep a checkpoint; all workers do at the same step."""
        if not self.plan.checkpoint_steps:
            return
        self.loop.average_statistics()
        self._saver.save(
            Checkpoint(
                step=position.step,
                examples=self.plan.examples_at(position.step, len(self._data.train)),
                settings=self._settings,
                progress=position.as_json(),
                names=self._state.names,
                arrays=self._state.take(),
            )
        )

    def _note_saved(self) -> None:
        if self._job.progress_file:
            touch(self._job.progress_file)


def settings_of(config: TrainerConfig, data: DataSet, plan: Plan) -> dict[str, str]:
    """Return what a run that goes on from a checkpoint must have as it was: name -> value.

    The number of workers may be another one, as long as the global batch is the same.
    """
    return config.run_settings() | {
        variable_of("global_batch_size"): str(plan.cut.global_batch_size),
        variable_of("steps_per_epoch"): str(plan.steps_per_epoch),
        "training examples": f"{len(data.train)} of {data.name}",
    }


def refuse_beginning(config: TrainerConfig) -> None:
    """Refuse to begin at step 0 where that is not wanted.

    Raises:
        ConfigurationError: a checkpoint must be there.
    """
    if config.resume == "must":
        accepted = "auto or never, since no worker holds a whole checkpoint"
        advice = f"Is {config.run_dir} the run's own directory, mounted on every worker?"
        raise ConfigurationError([Problem(shown_name("resume"), "must", accepted, advice)])
