"""The functions for your own scripts: the trainer's `fit` with your model and strategy.

    from cluster_trainer import fit, start_strategy

    with start_strategy().scope():
        model = build_my_model()
    fit(model, (train, test), epochs=5)

A setting that is not given as an argument is taken from its TRAINER_ variable
(docs/reference/settings.md). So one script runs on one device, on several and on a cluster.
"""

import atexit
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

import keras
import tensorflow as tf

from cluster_trainer import train
from cluster_trainer.builtin.complete import complete
from cluster_trainer.builtin.run import Completed, Run
from cluster_trainer.builtin.saving import save_trained
from cluster_trainer.collectives.replicas import count_of_all
from cluster_trainer.collectives.workers import Workers, workers_of
from cluster_trainer.data import registry
from cluster_trainer.data.examples import DataSet
from cluster_trainer.data.run_length import RunLength, run_length_of
from cluster_trainer.fits.elastic_recovery import explained
from cluster_trainer.fits.identity.owner import claim, script_name, this_process
from cluster_trainer.fits.process_state import present
from cluster_trainer.fits.script.end import meets_the_others
from cluster_trainer.fits.script.settings import read_fit, read_start, strategy_of
from cluster_trainer.fits.script.variables import unused_variables
from cluster_trainer.models.build import set_precision, synchronise_batch_norm
from cluster_trainer.models.compiling import (
    build_optimizer,
    check_loss,
    compile_with,
    loss_of,
    metrics_of,
)
from cluster_trainer.models.own_optimizer import read_optimizer
from cluster_trainer.problems import ConfigurationError, ExitCode, Problem
from cluster_trainer.process.exit_code import end_by, judge, leave_script, tell
from cluster_trainer.process.last_call import LastCall
from cluster_trainer.process.lifecycle import context_of, end, open_reporter, write_result
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import SIGNAL_CODES, StopRequest
from cluster_trainer.process.watch import STALLED
from cluster_trainer.results import record
from cluster_trainer.results.on_screen.report import Reporter, start_log
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.groups import OF_COMPILING, OF_THE_OPTIMIZER
from cluster_trainer.settings.job import Job

log = logging.getLogger("trainer")


def start_strategy(**settings: object) -> tf.distribute.Strategy:
    """Set up devices, threads and precision, and return the strategy that the settings name.

    You can use any other strategy of tf.distribute. This one has the image's measured choices of
    threads and communication. Call this function before anything else of TensorFlow. On a cluster,
    it returns once all workers are there.

    Args:
        settings: `strategy`, `devices`, `logical_cpus`, `collectives`, `wire`, `sync_every`,
            `silence_seconds`, `threads`, `gpus_per_worker` and `precision`
            (docs/reference/settings.md).

    Raises:
        SystemExit: a setting is refused; code 78, after a message.
    """
    try:
        job = read_start(os.environ, settings)
        start_log(job.task.name, view=job.view)
        set_precision(job.config)
        return train.start_strategy(job)
    except ConfigurationError as error:
        _refuse(error)


def fit(
    model: keras.Model,
    dataset: str | tuple[Any, Any],
    *,
    optimizer: keras.optimizers.Optimizer | str | None = None,
    loss: Any = None,
    metrics: Sequence[Any] | None = None,
    **settings: object,
) -> list[SimpleNamespace]:
    """Train a model under the strategy that it was built in, on one device or many workers.

    It does the same as `python -m trainer`. It calls Keras's `fit`, saves checkpoints on each
    worker, resumes from the newest one, and evaluates after each epoch. It writes metrics.jsonl,
    result.json and the trained model. All workers must call it with the same arguments and the same
    data. The workers compare both before they begin, and refuse differences.

    If a peer is lost, it ends the process with exit code 75, and the entrypoint restarts the
    script. If the process is asked to stop, it ends the process with 143, after a checkpoint.

    Args:
        model: a model that was built within `strategy.scope()`. A compiled model is trained as it
            is. If an optimizer, a loss or metrics are given, it is compiled again.
        dataset: a name, as in TRAINER_DATASET; or (train, test), where test may be None. Each part
            is a pair of arrays (inputs [n, …], labels [n, …]), an unbatched tf.data.Dataset of such
            pairs, or any other data that Keras's `fit` takes. All workers need the same data, and
            each takes its own slice of every batch. Inputs of pairs become float32 if they are
            floating-point numbers. uint8 [n, height, width, channels] are pictures, and are scaled
            from 0..255 to 0..1. Everything else reaches the model unchanged.
        optimizer: an optimizer that was made within the same scope, or a name; default: from the
            settings.
        loss: a loss that `compile` accepts. Default, if the labels are classes, integers [n] from
            0: the cross-entropy of logits [n, classes].
        metrics: metrics that `compile` accepts. Default, if the labels are classes: the accuracy.
        settings: the settings of docs/reference/settings.md, in lower case without TRAINER_, such
            as `epochs=5`, `global_batch_size=128`. A setting without an effect is refused.

    Returns:
        each epoch's metrics, as in metrics.jsonl: `.loss`, `.test_accuracy`. They are the same on
        all workers, and include epochs of earlier starts.

    Raises:
        SystemExit: a setting, the data, the model or a checkpoint is refused; code 78, after a
            message.
    """
    own = Own(optimizer, loss, metrics)
    compiles = own.is_given or not getattr(model, "compiled", False)
    overridden = own.overridden if compiles else OF_COMPILING
    job = _read(model, dataset, settings, overridden)
    reporter = open_reporter(job)
    reporter.used({"script": record.script()})
    unused = unused_variables(os.environ, overridden)
    if unused:
        log.warning("the script gives its own; not used: %s", ", ".join(unused))
    reporter.start_heartbeat()
    try:
        data = _load(dataset, job.config, reporter)
        reporter.doing("waiting until every worker has its data")
        run = _make_run(job, model, data, own, compiles=compiles)
        completed = _complete(run, job, reporter)
    except Exception as error:
        _end(error, job, reporter)
        raise
    reporter.finish("done", None, context_of(job))
    return [SimpleNamespace(**line) for line in completed.epochs]


@dataclass(frozen=True)
class Own:
    """The parts that a script gives to `compile`; None: the settings decide."""

    optimizer: Any
    loss: Any
    metrics: Sequence[Any] | None

    @property
    def is_given(self) -> bool:
        """Whether the script gives any part."""
        return bool(self.overridden)

    @property
    def overridden(self) -> list[str]:
        """The settings that have no effect because of the given parts."""
        names = [*OF_THE_OPTIMIZER] if self.optimizer is not None else []
        names += ["loss"] if self.loss is not None else []
        return names + (["metrics"] if self.metrics is not None else [])


def _read(
    model: keras.Model,
    dataset: str | tuple[Any, Any],
    settings: Mapping[str, Any],
    overridden: Collection[str],
) -> Job:
    """Read the settings, and replace those that do not describe this run."""
    try:
        job = read_fit(os.environ, model, dataset, settings, overridden=overridden)
        _use(job)
    except ConfigurationError as error:
        _refuse(error)
    return job


def _use(job: Job) -> None:
    """Refuse a second run of this start in the folder: it would resume from the first."""
    process, mine = present(), this_process(os.environ, script_name())
    is_taken = job.folder in process.folders
    if job.config.checkpoint_steps and not is_taken:
        is_taken = claim(job.folder, mine, process.locks).other is not None
    if is_taken:
        accepted = "another folder for each fit of a script, and for each process that it starts"
        raise ConfigurationError([Problem("run_dir", str(job.config.run_dir), accepted)])
    process.folders.add(job.folder)


def _refuse(error: ConfigurationError) -> NoReturn:
    tell(error, 1)
    leave_script(ExitCode.BAD_CONFIGURATION)


def _load(dataset: str | tuple[Any, Any], config: TrainerConfig, reporter: Reporter) -> DataSet:
    """Load the named data set, or wrap the script's data."""
    if isinstance(dataset, str):
        return train.load_data(config, reporter)
    registry.refuse_image_size(config.image_size, config.dataset)
    data = registry.from_parts("dataset", config.dataset, lambda: dataset)
    reporter.dataset(data.name)
    return data


def _make_run(job: Job, model: keras.Model, data: DataSet, own: Own, *, compiles: bool) -> Run:
    """Combine the script's parts with the settings."""
    config = job.config
    strategy = strategy_of(model, job.task.num_workers)
    if config.sync_batch_norm:
        synchronise_batch_norm(model.name, model)
    plan = run_length_of(config, data, count_of_all(strategy))
    train.log_plan(model.name, data, plan)
    if compiles:
        if model.compiled:
            log.warning("%s was compiled: it is compiled again, as fit was called", model.name)
        with strategy.scope():
            _compile(model, config, data, plan, own)
    given = own.overridden if compiles else OF_COMPILING
    return Run(job, plan, data, model, own=[one for one in ("optimizer", "loss") if one in given])


def _compile(
    model: keras.Model, config: TrainerConfig, data: DataSet, plan: RunLength, own: Own
) -> None:
    """Compile the model with the script's parts, and the settings for the others."""
    loss = loss_of(config, data) if own.loss is None else own.loss
    if own.optimizer is None:
        optimizer = build_optimizer(config, plan)
    else:
        optimizer = read_optimizer(own.optimizer, model)
    metrics = metrics_of(config, data) if own.metrics is None else list(own.metrics)
    compile_with(model, optimizer, loss, metrics, jit=config.jit)
    check_loss("model", model.name, model, data)


def _complete(run: Run, job: Job, reporter: Reporter) -> Completed:
    stop = StopRequest(lambda code, reason: end(job, reporter, code, reason))
    deadline = Deadline.kept_in(job.deadline_file)
    workers = workers_of(run.model.distribute_strategy)
    with stop.handled(), deadline.kept(lambda: end(job, reporter, STALLED.code, STALLED.reason)):
        completed = complete(run, stop, deadline, reporter)
        save_trained(run, completed, reporter, lambda: keras.models.clone_model(run.model))
    if stop.signal_number:  # too late for the run to end by it
        end(job, reporter, SIGNAL_CODES + stop.signal_number, "stopped after the last step")
    _leave_together(workers)
    return completed


def _leave_together(workers: Workers) -> None:
    """Wait until all workers end, because a worker that ends early would count as lost."""
    atexit.register(meets_the_others, workers, LastCall().begin())


def _end(error: Exception, job: Job, reporter: Reporter) -> None:
    """End the process as the trainer would, unless the error is the script's own."""

    def finish(code: int, reason: str | None) -> None:
        write_result(job, reporter, code, reason)

    error = explained(error)
    end_by(error, job.task.num_workers, finish)
    finish(*judge(error, job.task.num_workers))
