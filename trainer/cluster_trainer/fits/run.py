"""One run of the trainer: Keras's `fit` with the project's callbacks."""

import inspect
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import keras
import numpy as np

from cluster_trainer.callbacks.divergence import Divergence
from cluster_trainer.callbacks.epoch_metrics import Line
from cluster_trainer.callbacks.tensorboard import FOLDER
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.data.feeds import fit_arguments
from cluster_trainer.data.memory import available_bytes
from cluster_trainer.data.plan import Plan
from cluster_trainer.engine import install, running
from cluster_trainer.engine.data.given import GivenArrays
from cluster_trainer.engine.first_batch import mode as first_batch
from cluster_trainer.fits import predictions
from cluster_trainer.fits.identity import earlier
from cluster_trainer.fits.kept.agreement import facts_of, refuse_differing
from cluster_trainer.fits.kept.beginning import Beginning
from cluster_trainer.fits.kept.compiled import training_described
from cluster_trainer.fits.kept.kept_fit import CHECKPOINTS, KeptFit, close
from cluster_trainer.fits.kept.plan import Plan as Keeping
from cluster_trainer.fits.lost_worker import Survivor
from cluster_trainer.fits.records import Records, metrics_of, others_of
from cluster_trainer.fits.start_text import start_of
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results import done, export, metrics_file, record, weights
from cluster_trainer.results.report import Reporter
from cluster_trainer.results.status_file import status_file
from cluster_trainer.settings.config import variable_of
from cluster_trainer.settings.job import Job, engine_off

OF_A_RUN = (
    CHECKPOINTS,
    FOLDER,
    metrics_file.FILE,
    predictions.FILE,
    export.KERAS_FILE,
    export.SAVED_MODEL,
    done.FILE,
)
"""What a run leaves in a worker's folder besides its journal and its log, which go on."""
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Run:
    """What is trained, and how.

    Attributes:
        job: what this process was started to do.
        plan: how long it is.
        data: what is trained on.
        model: compiled.
        own: the parts of `record.of` that a script or a module of the user's has given.
    """

    job: Job
    plan: Plan
    data: DataSet
    model: keras.Model
    own: Collection[str] = ()


@dataclass(frozen=True)
class Completed:
    """What a run has come to.

    Attributes:
        weights: the model's, in its own order.
        epochs: every epoch's metrics, those of earlier starts too; see EpochMetrics.
        steps: how many it took, those of earlier starts too.
    """

    weights: list[np.ndarray]
    epochs: list[Line]
    steps: int


@dataclass(frozen=True)
class Given:
    """What `fit` is given: once, as making it may copy all examples, however often it begins.

    Attributes:
        arguments: the data, and how they are cut.
        arrays: that are among them.
    """

    arguments: Mapping[str, Any]
    arrays: GivenArrays

    @classmethod
    def of(cls, run: Run) -> "Given":
        """Return it of a run."""
        arguments = fit_arguments(run.data, run.job.config, run.plan)
        return cls(arguments, GivenArrays(*map(arguments.get, ("x", "y", "sample_weight"))))


def complete(run: Run, stop: StopRequest, deadline: Deadline, reporter: Reporter) -> Completed:
    """Train from the newest checkpoint of any worker, or from the start, to the end.

    Raises:
        ConfigurationError: the workers differ, or the checkpoint is of another run.
        StopRequestedError, PeerStoppedError: a worker was asked to stop.
        TrainingDivergedError: the loss is not a finite number.
        PeerLostError, RingError: a worker was lost, and only a new process could go on.
    """
    _refuse_other_engines(run.model)
    first_batch.use(run.job.config.first_batch, available_bytes)
    beginning = Beginning(run.job)
    described = _described(run, reporter)
    facts = facts_of(run.job.config, run.data, described)
    latest: list[KeptFit] = []  # one at most: each holds a checkpoint
    given = Given.of(run)

    def work(is_again: bool) -> Completed:  # noqa: FBT001
        present = replace(run, job=replace(run.job, is_restart=True)) if is_again else run
        refuse_differing(workers_of(run.model.distribute_strategy), run.job.task, facts)
        _move_unwanted_aside(run.job, beginning)
        keeping = _keeping(present, stop, deadline, described, reporter)
        keeping = replace(keeping, has_trained=survivor.has_trained, may_take_in=survivor.goes_on)
        close(latest)
        latest[:] = [KeptFit(keeping, run.model)]
        return _trained(present, given, latest[0], reporter)

    def rehearse() -> None:
        keeping = _keeping(run, stop, deadline, described, reporter)
        reporter.doing("compiling the steps")
        _fit(run, given, KeptFit(replace(keeping, rehearses=True), run.model), callbacks=())

    status = status_file(run.job.status_file)
    survivor = Survivor(run.job.task, stop, status, partial(_note_waiting, reporter))
    try:
        return survivor.run(work, lambda: latest[0] if latest else None, rehearse)
    finally:
        close(latest)


def _note_waiting(reporter: Reporter, waiting: str) -> None:
    reporter.doing(waiting)
    reporter.journal.note("waiting", waiting)


def _trained(run: Run, given: Given, kept: KeptFit, reporter: Reporter) -> Completed:
    """Train to the end, once."""
    kept.find()
    reporter.begin(kept.place.step)
    records = Records(
        job=run.job,
        folder=run.job.folder,
        book=reporter.journal,
        report=reporter.epochs,
        start=lambda: start_of(run.job, run.model, kept.beginning),
        examples_at=run.plan.examples_at if run.plan.counts_examples else None,
        test_examples=len(run.data.test) if isinstance(run.data.test, Examples) else None,
    )
    metrics = metrics_of(records, kept)
    callbacks = [
        metrics,
        Divergence(lambda: kept.place),
        *others_of(records, run.model, kept),
    ]
    reporter.doing("compiling the steps")
    reporter.journal.note("starting", f"compiling the steps; {kept.beginning}")
    _fit(run, given, kept, callbacks)
    reporter.step(kept.place.step)
    values = weights.values_of(run.model)
    reporter.weights(weights.digest(values))
    return Completed(values, metrics.lines, kept.place.step)


def _fit(
    run: Run, given: Given, kept: KeptFit, callbacks: Sequence[keras.callbacks.Callback]
) -> None:
    """Call Keras's `fit`."""
    with running.fits_run_by(_with_settings(run, given.arrays, kept)):
        run.model.fit(
            **given.arguments,
            epochs=run.plan.epochs,
            callbacks=list(callbacks),
            verbose=0,
        )


def _refuse_other_engines(model: keras.Model) -> None:
    """Refuse what the engine has no part in: nothing of a run would be kept, or counted.

    Raises:
        ConfigurationError: with what it is.
    """
    if not install.is_installed():
        raise ConfigurationError([engine_off("off")])
    if own := install.own_functions(model):
        accepted = f"a model without a {' and a '.join(own)} of its own"
        advice = "A script of your own may train it by `model.fit`, without checkpoints."
        raise ConfigurationError([Problem("model", type(model).__name__, accepted, advice)])


def _described(run: Run, reporter: Reporter) -> dict[str, str]:
    """Return what must be as it was for the run to go on: name -> value."""
    used = record.of(run.model)
    reporter.used(used)
    reporter.settings(run.job.config.as_json())
    names = {"optimizer": used["optimizer"]["class_name"], "loss": used["loss"]}
    log.info(", ".join(f"{what} {name}" for what, name in names.items() if name) or "compiled")
    own = {f"the {name}": record.as_text(used[name]) for name in run.own}
    return training_described(run.model, {}) | _settings_of(run) | own


def _settings_of(run: Run) -> dict[str, str]:
    """Return what a run that goes on from a checkpoint must have as it was: name -> value.

    The number of workers may be another one, as long as the global batch is the same.
    """
    described = run.job.config.run_settings()
    if run.data.has_examples:
        described |= {
            variable_of("global_batch_size"): str(run.plan.global_batch_size),
            variable_of("steps_per_epoch"): str(run.plan.steps_per_epoch),
            "training examples": f"{run.plan.examples} of {run.data.name}",
        }
    return described


def _keeping(
    run: Run, stop: StopRequest, deadline: Deadline, described: dict[str, str], reporter: Reporter
) -> Keeping:
    """Return how its `fit` is kept."""
    job = run.job
    return Keeping(
        job=job,
        stop=stop,
        deadline=deadline,
        folder=job.folder / CHECKPOINTS,
        described=described,
        describes_data=run.data.has_examples,
        must_resume=job.config.resume == "must",
        cuts=job.config.profile_cuts,
        listener=reporter,
        examples_at=run.plan.examples_at if run.plan.counts_examples else None,
    )


def _move_unwanted_aside(job: Job, beginning: Beginning) -> None:
    """Move aside what an earlier run has left where this one is to begin anew.

    A crash is no wish to begin anew, nor is the loss of another worker.
    """
    earlier.finish(job.folder)
    if job.config.resume == "never" and not beginning.is_over:
        began = min((one.stat().st_mtime for one in job.folder.glob("*")), default=time.time())
        place = earlier.move_aside(job.folder, OF_A_RUN, job.config.model, began)
        if place:
            log.info("what an earlier run left in %s is now in %s", job.folder, place)
            earlier.keep_newest(job.folder, job.config.keep_earlier)
        beginning.end()


def _with_settings(run: Run, arrays: GivenArrays, kept: KeptFit) -> running.AroundFit:
    """Return what the `fit` is run by: with the order, and the calls, that the settings ask for."""
    steps, seed = run.job.config.steps_per_call, run.job.config.seed

    def around(
        fit: Callable[..., Any], given: inspect.BoundArguments, call: running.Running
    ) -> Any:
        call.seed, call.steps_a_call = seed, None if steps == "auto" else steps
        call.goes_on, call.arrays = True, arrays
        return kept.run(fit, given, call)

    return around
