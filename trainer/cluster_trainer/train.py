"""One run from beginning to end: the only place that knows all the parts."""

import logging
import time

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer import done, export, strategy
from cluster_trainer.build import build_model, build_optimizer, warn_of_compiled
from cluster_trainer.config import TrainerConfig, shown_name
from cluster_trainer.data import order, registry
from cluster_trainer.data.examples import DataSet
from cluster_trainer.epochs import Plan
from cluster_trainer.job import Job
from cluster_trainer.loop import Loop
from cluster_trainer.pace import Pace
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.report import Reporter
from cluster_trainer.run import Run
from cluster_trainer.stall import Deadline, StallLimit
from cluster_trainer.stop import StopRequest
from cluster_trainer.task import Task

PICTURE_RANK = 3
log = logging.getLogger("trainer")


def train_and_evaluate(job: Job, stop: StopRequest, deadline: Deadline, reporter: Reporter) -> None:
    """Train, evaluate after each epoch, keep checkpoints, export, and report all of it.

    Raises:
        ConfigurationError: a setting does not fit the data, the model, the cluster or a checkpoint.
        PeerLostError, tf.errors.OpError: another worker went away.
        StopRequestedError: this worker was asked to stop.
        TrainingDivergedError: the loss is not a finite number.
    """
    config, task = job.config, job.task
    distribution = start_strategy(config, task)
    reporter.cluster_is_up()
    data = load_data(config, reporter)
    reporter.doing("building the model, and waiting until every worker has its data")
    run = build_run(job, data, distribution)
    pace = make_pace(run.loop, config, stop, deadline)
    completed = run.complete(pace, reporter)
    reporter.doing("saving the model")
    if task.is_chief:
        save_model(config, data, completed.weights, reporter)
    # Nobody leaves before the chief has written: a worker that exits early is, to the others, one
    # that died. From here on nothing is left to do for anyone.
    pace.meet()
    done.mark(job, run.plan.steps)
    pace.leave()


def load_data(config: TrainerConfig, reporter: Reporter) -> DataSet:
    """Load the data set that the settings name.

    Raises:
        ConfigurationError: there is no such set, or it does not fit here.
    """
    reporter.doing(f"loading {config.dataset}")
    data = registry.load(
        config.dataset, config.data_dir, config.image_size, config.cache, reporter.doing
    )
    reporter.dataset(data.name)
    return data


def make_pace(loop: Loop, config: TrainerConfig, stop: StopRequest, deadline: Deadline) -> Pace:
    """Return what runs the compiled steps, and looks for stops and stalls in between."""
    stall = StallLimit(deadline, config.stall_timeout_seconds)
    return Pace(loop, config.steps_per_call, stop, stall)


def build_run(job: Job, data: DataSet, distribution: tf.distribute.Strategy) -> Run:
    """Build the model, its optimizer and the compiled steps that the settings name.

    Raises:
        ConfigurationError: a setting does not fit the data, the model or the number of replicas.
    """
    plan = make_plan(job.config, data, distribution.num_replicas_in_sync)
    with distribution.scope():
        keras.utils.set_random_seed(job.config.seed)
        model = build_model(job.config, data)
        warn_of_compiled(model)
        optimizer = build_optimizer(job.config, plan.steps, plan.cut.global_batch_size)
        loop = Loop(distribution, model, optimizer)
    return Run(job, plan, data, loop)


def start_strategy(config: TrainerConfig, task: Task) -> tf.distribute.Strategy:
    """Set up devices and construct the strategy, which waits for all workers of a cluster."""
    num_gpus = strategy.count_gpus()
    check_gpus(config, num_gpus)
    local_devices = strategy.set_devices(config.devices, config.logical_cpus)
    threads = strategy.set_threads(config.threads, local_devices)
    choice = strategy.choose(config.strategy, task, len(local_devices))
    distribution = strategy.build(choice, local_devices)
    log.info(
        "up: strategy %s on %s, replicas in sync %d, GPUs here %d, CPU threads %d",
        choice,
        config.devices or ",".join(local_devices[: distribution.num_replicas_in_sync]),
        distribution.num_replicas_in_sync,
        num_gpus,
        threads,
    )
    chose_cpu = config.logical_cpus or config.devices
    if tf.test.is_built_with_cuda() and not num_gpus and not chose_cpu:
        log.warning("TensorFlow sees no GPU and trains on the CPU: is --gpus all missing?")
    return distribution


def check_gpus(config: TrainerConfig, num_gpus: int) -> None:
    """Refuse to train on other devices than this worker was meant to have.

    Raises:
        ConfigurationError: TensorFlow sees another number of GPUs than `gpus_per_worker`.
    """
    wanted = config.gpus_per_worker
    if wanted is not None and wanted != num_gpus:
        accepted = "the number of GPUs that TensorFlow sees"
        name, advice = shown_name("gpus_per_worker"), f"It sees {num_gpus}."
        raise ConfigurationError([Problem(name, str(wanted), accepted, advice)])


def make_plan(config: TrainerConfig, data: DataSet, num_replicas: int) -> Plan:
    """Cut the data as the settings say.

    Raises:
        ConfigurationError: the global batch size cannot be shared out among the replicas, or what
            is to be augmented are no pictures.
    """
    if config.augment != "none" and len(data.train.input_shape) != PICTURE_RANK:
        shape, accepted = list(data.train.input_shape), "none, since the inputs are no pictures"
        advice = f"Each of {data.name} has the shape {shape}, not [height, width, channels]."
        raise ConfigurationError([Problem(shown_name("augment"), config.augment, accepted, advice)])
    cut = order.Slice(config.batch_size_per_replica(num_replicas), num_replicas)
    steps_per_epoch = config.steps_per_epoch or cut.steps_per_pass(len(data.train))
    log.info(
        "%s on %s: %d examples to train on, %d to test",
        config.model,
        data.name,
        len(data.train),
        len(data.test),
    )
    log.info("global batch %d, %d steps an epoch", cut.global_batch_size, steps_per_epoch)
    return Plan(
        cut=cut,
        epochs=config.epochs,
        steps_per_epoch=steps_per_epoch,
        test_steps=cut.steps_per_pass(len(data.test)),
        checkpoint_steps=config.checkpoint_steps,
    )


def save_model(
    config: TrainerConfig, data: DataSet, values: list[np.ndarray], reporter: Reporter
) -> None:
    """Write the trained model, from a copy that knows nothing of the strategy."""
    started = time.monotonic()
    copy = build_model(config, data)
    copy.set_weights(values)
    folder = config.model_dir or reporter.folder
    export.save(copy, folder)
    log.info("saved the model to %s in %.1f s", folder, time.monotonic() - started)
