"""Runs the built-in trainer, which is a Keras program, from beginning to end."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import keras
import tensorflow as tf

from cluster_trainer.builtin.complete import complete
from cluster_trainer.builtin.run import Run
from cluster_trainer.builtin.saving import save_trained
from cluster_trainer.collectives import local_devices as offered_devices
from cluster_trainer.collectives import neighbours, process_ring
from cluster_trainer.collectives.replicas import count_of, count_of_all
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.data import registry
from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.data.run_length import RunLength, run_length_of
from cluster_trainer.distribution import ring, strategy
from cluster_trainer.fits.elastic_recovery import explaining
from cluster_trainer.fits.kept.consistency_check import refuse_rounds
from cluster_trainer.models.build import build_model
from cluster_trainer.models.compiling import compile_as_set
from cluster_trainer.pod import is_in_pod
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results import done
from cluster_trainer.results.on_screen.report import Reporter
from cluster_trainer.results.status_file import status_file
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.groups import OF_COMPILING, OWN
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.names.spellings import shown_name

log = logging.getLogger("trainer")


@explaining()  # calls before and after the fit are included
def train_and_evaluate(job: Job, stop: StopRequest, deadline: Deadline, reporter: Reporter) -> None:
    """Train, evaluate after each epoch, save checkpoints, export, and report all of it.

    Raises:
        ConfigurationError: a setting does not fit the data, the model, the cluster or a checkpoint.
        PeerLostError, RingError, tf.errors.OpError: another worker went away.
        StopRequestedError: this worker was asked to stop.
        TrainingDivergedError: the loss is not a finite number.
    """
    config, task = job.config, job.task
    status = status_file(job.status_file)
    if task.num_workers > 1:
        status.tell("starting", f"waiting for the cluster of {task.num_workers} workers")
    distribution = start_strategy(job, reporter.asks_for_ring)
    reporter.cluster_is_up()
    status.tell("starting", f"loading {config.dataset}")
    data = load_data(config, reporter)
    status.tell("starting", "building the model, and waiting until every worker has its data")
    reporter.doing("building the model, and waiting until every worker has its data")
    run = build_run(job, data, distribution)
    completed = complete(run, stop, deadline, reporter)
    reporter.doing("saving the model")
    status.tell("saving", "the trained model")
    save_trained(run, completed, reporter, lambda: build_model(config, data))
    done.mark(run.job, completed.steps)  # nothing is left to do for any worker
    workers_of(distribution).part()


def build_run(job: Job, data: DataSet, distribution: tf.distribute.Strategy) -> Run:
    """Build and compile the model that the settings name.

    Raises:
        ConfigurationError: a setting does not fit the data, the model or the number of replicas.
    """
    config = job.config
    plan = run_length_of(config, data, count_of_all(distribution))
    log_plan(config.model, data, plan)
    with distribution.scope():
        keras.utils.set_random_seed(config.seed)
        return compile_for(build_model(config, data), job, data, plan)


def compile_for(model: keras.Model, job: Job, data: DataSet, plan: RunLength) -> Run:
    """Compile a model by the settings, unless it is compiled; call this in the strategy's scope.

    Raises:
        ConfigurationError: the settings do not fit the model, or would do nothing.
    """
    is_own = model.compiled
    compile_as_set(model, job.config, data, plan)
    if not is_own:
        return Run(job, plan, data, model)
    trained = job.config.model_copy(update=dict.fromkeys(OF_COMPILING, OWN))
    return Run(replace(job, config=trained), plan, data, model, own=("optimizer", "loss"))


def log_plan(model: str, data: DataSet, plan: RunLength) -> None:
    """Log the amount of work."""
    what = ""
    if isinstance(data.train, Examples):
        tested = 0 if data.test is None else len(data.test)
        what = f": {len(data.train)} examples to train on, {tested} to test"
    log.info("%s on %s%s", model, data.name, what)
    batch = plan.global_batch_size or "as the data give it"
    steps = plan.steps_per_epoch or "an unknown number of"
    log.info("global batch %s, %s steps an epoch", batch, steps)


def load_data(config: TrainerConfig, reporter: Reporter) -> DataSet:
    """Load the data set that the settings name.

    Raises:
        ConfigurationError: there is no such set, or it does not fit here.
    """
    say = partial(reporter.doing, is_own=True)  # each worker may prepare a set by itself
    say(f"loading {config.dataset}")
    data = registry.load(config.dataset, config.data_dir, config.image_size, config.cache, say)
    reporter.dataset(data.name)
    return data


def start_strategy(
    job: Job, before_ring: Callable[[], object] = lambda: None
) -> tf.distribute.Strategy:
    """Set up devices and construct the strategy, which waits for all workers of a cluster.

    Args:
        job: the settings.
        before_ring: called before the entrypoint is asked for the other workers.
    """
    config, task = job.config, job.task
    offered_devices.withdraw()
    num_gpus = strategy.count_gpus()
    check_gpus(config, num_gpus)
    local_devices = strategy.set_devices(config.devices, config.logical_cpus)
    threads = strategy.set_threads(config.threads, local_devices)
    may_ring = job.group_socket is not None
    choice = strategy.choose(
        config.strategy, config.collectives, task, local_devices, may_ring=may_ring
    )
    if choice == "ring":
        ring.refuse_devices(local_devices)
        own = {neighbours.VARIABLE: job.group_socket} if job.group_socket else {}
        most = task.num_workers if job.may_be_fewer else None
        before_ring()
        process_ring.use(ring.form(own, config.silence_seconds, most, is_late=job.comes_late))
        ring.heed(config)
    elif job.may_be_fewer:
        ring.warn_of_all_workers()
    distribution = strategy.build(choice, local_devices)
    log.info(
        "up: strategy %s on %s, replicas in sync %d, GPUs here %d, CPU threads %d",
        choice,
        config.devices or ",".join(local_devices[: distribution.num_replicas_in_sync]),
        # Workers that train already are met later.
        count_of_all(distribution) if job.comes_late else count_of(distribution),
        num_gpus,
        threads,
    )
    if choice == "ring":
        ring.say_rounds(config)
    refuse_rounds(config, distribution)
    chose_cpu = config.logical_cpus or config.devices
    if tf.test.is_built_with_cuda() and not num_gpus and not chose_cpu:
        wanted = "nvidia.com/gpu in resources.limits" if is_in_pod() else "--gpus all"
        log.warning("TensorFlow sees no GPU and trains on the CPU: is %s missing?", wanted)
    return distribution


def check_gpus(config: TrainerConfig, num_gpus: int) -> None:
    """Refuse to train with another number of GPUs than requested.

    Raises:
        ConfigurationError: TensorFlow sees another number of GPUs than `gpus_per_worker`.
    """
    wanted = config.gpus_per_worker
    if wanted is not None and wanted != num_gpus:
        accepted = "the number of GPUs that TensorFlow sees"
        name, advice = shown_name("gpus_per_worker"), f"It sees {num_gpus}."
        raise ConfigurationError([Problem(name, str(wanted), accepted, advice)])
