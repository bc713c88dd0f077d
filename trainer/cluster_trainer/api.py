"""What scripts of your own use: the project's loop on a model and a strategy of yours.

    from cluster_trainer import fit, start_strategy

    with start_strategy().scope():
        model = build_my_model()
    fit(model, (train, test), epochs=5)

Every setting of docs/environment.md that is not given as an argument is taken from its TRAINER_
variable, so that one script runs on one device, on several and on a cluster as it is started.
"""

import atexit
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import keras
import tensorflow as tf

from cluster_trainer import export, gradients, train
from cluster_trainer.build import (
    build_optimizer,
    check_model,
    set_precision,
    synchronise_batch_norm,
    warn_of_compiled,
)
from cluster_trainer.config import TrainerConfig
from cluster_trainer.data import registry
from cluster_trainer.data.examples import DataSet
from cluster_trainer.job import Job
from cluster_trainer.lifecycle import context_of, end, judge, open_reporter, status_of, tell
from cluster_trainer.loop import Loop
from cluster_trainer.losses import read_loss, takes_logits
from cluster_trainer.own_optimizer import read_optimizer
from cluster_trainer.problems import ConfigurationError, ExitCode, Problem
from cluster_trainer.report import EpochMetrics, Reporter, start_log
from cluster_trainer.run import Completed, Run
from cluster_trainer.script import read_fit, read_start, strategy_of, unused_variables
from cluster_trainer.stall import Deadline
from cluster_trainer.stop import StopRequest
from cluster_trainer.train import load_data, make_pace, make_plan
from cluster_trainer.watch import STALLED

log = logging.getLogger("trainer")
# Folders that this process has trained into.
_used: set[Path] = set()


def start_strategy(**settings: object) -> tf.distribute.Strategy:
    """Set up devices, threads and precision, and return the strategy that the settings name.

    Any other strategy of tf.distribute will do, too; this one comes with the image's measured
    choices of threads and of communication. Call it before anything else of TensorFlow. On a
    cluster it returns once all workers are there.

    Args:
        settings: `strategy`, `devices`, `logical_cpus`, `threads`, `gpus_per_worker` and
            `precision` of docs/environment.md, without TRAINER_.

    Raises:
        SystemExit: with code 78, after a message, if a setting is not acceptable.
    """
    try:
        job = read_start(os.environ, settings)
        start_log(job.task.name)
        set_precision(job.config)
        return train.start_strategy(job.config, job.task)
    except ConfigurationError as error:
        _refuse(error)


def fit(
    model: keras.Model,
    dataset: str | tuple[Any, Any],
    *,
    optimizer: keras.optimizers.Optimizer | str | None = None,
    loss: Any = None,
    **settings: object,
) -> list[EpochMetrics]:
    """Train a classifier under the strategy that it was built in, whatever strategy that is.

    Does what `python -m trainer` does: the order of the examples, checkpoints on every worker and
    going on from the newest of them, evaluation after each epoch, metrics.jsonl, result.json, the
    trained model. All workers of a cluster call it with the same arguments and load the same
    data; they compare both before they begin, and refuse what differs.

    Where a peer is lost (exit code 75), or the process is asked to stop (143, after a checkpoint),
    it does not return but ends the process: TensorFlow could not go on in it. The entrypoint starts
    the script again after the one and not after the other.

    Args:
        model: built within `strategy.scope()`, with outputs [n, classes]: logits, unless `loss`
            wants probabilities. Need not be compiled; what it was compiled with is not used. One
            with a `train_step` of its own, or the like, is refused.
        dataset: a name as TRAINER_DATASET takes it, or (train, test), each (inputs [n, …],
            labels [n], whole numbers from 0) as arrays or an unbatched tf.data.Dataset of such
            pairs. The same on all workers: each takes its own slice of every batch. Inputs reach
            the model as they are, floating-point numbers as float32. Only uint8 [n, height, width,
            channels] are taken for pictures, and scaled from 0..255 to 0..1.
        optimizer: made within the same scope, or the name of one; not given: as the settings say.
            With `use_ema` the model gets the averages at the end, as from Keras' fit.
        loss: as `compile` takes it, for labels int64 [n] and outputs float32 [n, classes]: a name,
            an object of keras.losses, or a function that returns one loss for each example, [n].
            Not given: the cross-entropy of logits.
        settings: those of docs/environment.md, without TRAINER_ and in small letters: `epochs=5`,
            `global_batch_size=128`, `run_dir="/runs/first"`. What would do nothing here is refused.

    Returns:
        Each epoch's metrics, the same on all workers; those of earlier starts, too.

    Raises:
        SystemExit: with code 78, after a message, if something does not fit.
    """
    job = _read(model, dataset, settings, has_optimizer=optimizer is not None)
    reporter = open_reporter(job)
    unused = unused_variables(os.environ)
    if optimizer is not None and unused:
        log.warning("the script gives its own optimizer; not used: %s", ", ".join(unused))
    reporter.start_heartbeat()
    try:
        data = _load(dataset, job.config, reporter)
        reporter.doing("waiting until every worker has its data")
        run = _make_run(job, model, data, optimizer, loss)
        completed = _complete(run, job, reporter)
    except Exception as error:
        _end(error, job, reporter)
        raise
    reporter.finish("done", None, context_of(job))
    return list(completed.epochs)


def _read(
    model: keras.Model,
    dataset: str | tuple[Any, Any],
    settings: Mapping[str, Any],
    *,
    has_optimizer: bool,
) -> Job:
    """Read the settings, and say in them what this run really trains.

    Raises:
        SystemExit: they are not acceptable.
    """
    try:
        job = read_fit(os.environ, model, dataset, settings, has_optimizer=has_optimizer)
        _use(job)
    except ConfigurationError as error:
        _refuse(error)
    return job


def _use(job: Job) -> None:
    """Keep a second run of this process out of the folder: it would go on from the first.

    Raises:
        ConfigurationError: it is the second.
    """
    if job.folder in _used:
        accepted = "another folder for each fit of a script"
        raise ConfigurationError([Problem("run_dir", str(job.config.run_dir), accepted)])
    _used.add(job.folder)


def _refuse(error: ConfigurationError) -> NoReturn:
    tell(error, 1)
    raise SystemExit(ExitCode.BAD_CONFIGURATION)


def _load(dataset: str | tuple[Any, Any], config: TrainerConfig, reporter: Reporter) -> DataSet:
    """Load the data set, or take the arrays.

    Raises:
        ConfigurationError: there is no such set, or no pair of parts.
    """
    if isinstance(dataset, str):
        return load_data(config, reporter)
    registry.refuse_image_size(config.image_size, config.dataset)
    data = registry.from_parts("dataset", config.dataset, lambda: dataset)
    reporter.dataset(data.name)
    return data


def _make_run(
    job: Job,
    model: keras.Model,
    data: DataSet,
    optimizer: keras.optimizers.Optimizer | str | None,
    loss: Any,
) -> Run:
    """Put the script's parts and the settings together.

    Raises:
        ConfigurationError: they do not fit each other, or the cluster.
    """
    config = job.config
    strategy = strategy_of(model, job.task.num_workers)
    losses = read_loss(loss, data.num_classes)
    check_model("model", model.name, model, data, to_logits=takes_logits(loss))
    warn_of_compiled(model)
    if config.sync_batch_norm:
        synchronise_batch_norm(model.name, model)
    plan = make_plan(config, data, strategy.num_replicas_in_sync)
    with strategy.scope():
        if optimizer is None:
            used = build_optimizer(config, plan.steps, plan.cut.global_batch_size)
        else:
            used = read_optimizer(optimizer, strategy, model)
        loop = Loop(strategy, model, used, losses)
    return Run(job, plan, data, loop, own=("loss",) if optimizer is None else ("loss", "optimizer"))


def _complete(run: Run, job: Job, reporter: Reporter) -> Completed:
    """Train to the end, hearing stop requests, and save the model."""
    stop = StopRequest(lambda code, reason: end(job, reporter, code, reason))
    deadline = Deadline()
    pace = make_pace(run.loop, job.config, stop, deadline)
    with stop.handled(), deadline.kept(lambda: end(job, reporter, STALLED.code, STALLED.reason)):
        completed = run.complete(pace, reporter)
        if job.task.is_chief:
            _save(run.loop.model, completed, job.config.model_dir or reporter.folder)
        pace.meet()
    gradients.give_summing_back(run.loop.optimizer)
    # A worker whose script ends is, to the others, one that died; they may still be at work.
    atexit.register(pace.leave)
    return completed


def _save(model: keras.Model, completed: Completed, folder: Path) -> None:
    """Write the trained model, from a copy that knows nothing of the strategy."""
    try:
        copy = keras.models.clone_model(model)
        copy.set_weights(completed.weights)
        export.save(copy, folder)
    except (TypeError, ValueError, NotImplementedError) as error:
        log.warning("the model was not saved, only its checkpoints: %s", error)


def _end(error: Exception, job: Job, reporter: Reporter) -> None:
    """End the process as the trainer would, unless the error is the script's own affair.

    Raises:
        SystemExit: something does not fit, and no peer would wait for this process to be gone.
    """
    code, reason = judge(error, job.task.num_workers)
    if code == ExitCode.CRASHED:
        reporter.finish(status_of(code), reason, context_of(job))
        return
    tell(error, job.task.num_workers)
    if isinstance(error, ConfigurationError) and job.task.num_workers == 1:
        reporter.finish(status_of(code), reason, context_of(job))
        raise SystemExit(code)
    end(job, reporter, code, reason)
