"""One run from beginning to end: the only place that knows all the parts."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer import export, models, references, strategy, weights
from trainer.config import TrainerConfig, shown_name
from trainer.data import order, registry
from trainer.data.examples import DataSet
from trainer.loop import Loop, Totals
from trainer.pace import Pace
from trainer.problems import ConfigurationError, Problem, TrainingDivergedError
from trainer.report import EpochMetrics, Reporter
from trainer.stop import StopRequest
from trainer.task import Task

log = logging.getLogger("trainer")
MODEL_VARIABLE = shown_name("model")
# The destructor of a distributed iterator waits for tf.data's autotuning thread, which sleeps for
# up to ten seconds (measured). The process ends by os._exit: kept here, none is ever destroyed.
KEPT_ITERATORS: list[Any] = []


def train_and_evaluate(
    config: TrainerConfig, task: Task, stop: StopRequest, reporter: Reporter
) -> None:
    """Train as `config` says, evaluate after each epoch, export, and report all of it.

    Raises:
        ConfigurationError: a setting does not fit the data, the model or the cluster.
        PeerLostError, tf.errors.OpError: another worker went away.
        StopRequestedError: this worker was asked to stop.
        TrainingDivergedError: the loss is not a finite number.
    """
    distribution = start_strategy(config, task, reporter)
    reporter.doing(f"loading {config.dataset}")
    data = registry.load(config.dataset, config.data_dir, config.image_size)
    plan = make_plan(config, data, distribution.num_replicas_in_sync)
    with distribution.scope():
        keras.utils.set_random_seed(config.seed)
        model = build_model(config.model, data)
        loop = Loop(distribution, model, build_optimizer(config, plan.steps))
    pace = Pace(loop, config.steps_per_call, stop)
    for metrics in Epochs(data, plan, loop, pace, reporter):
        reporter.epoch(metrics)
    values = weights.values_of(model)
    reporter.weights(weights.digest(values))
    reporter.doing("saving the model")
    if task.is_chief:
        save_model(config, data, values, reporter)
    # Nobody leaves before the chief has written: a worker that exits early is, to the others, one
    # that died.
    pace.agree(0.0)


def start_strategy(config: TrainerConfig, task: Task, reporter: Reporter) -> tf.distribute.Strategy:
    """Set up devices and construct the strategy, which waits for all workers of a cluster."""
    num_gpus = strategy.configure_devices(config.threads)
    check_gpus(config, num_gpus)
    choice = strategy.choose(config.strategy, task, num_gpus)
    distribution = strategy.build(choice, num_gpus)
    reporter.cluster_is_up()
    log.info(
        "up: strategy %s, replicas in sync %d, GPUs here %d, CPU threads %d",
        choice,
        distribution.num_replicas_in_sync,
        num_gpus,
        tf.config.threading.get_intra_op_parallelism_threads(),
    )
    if tf.test.is_built_with_cuda() and not num_gpus:
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


def build_model(name: str, data: DataSet) -> keras.Model:
    """Build the model for the data's shapes.

    Raises:
        ConfigurationError: it is not a model that returns one logit for each class.
    """
    build = references.resolve(MODEL_VARIABLE, models.reference_of(name))
    try:
        model = build(data.train.input_shape, data.num_classes)
    except (TypeError, ValueError) as error:
        accepted = f"a function that builds a model for inputs {list(data.train.input_shape)}"
        raise _refused_model(name, accepted, str(error)) from error
    accepted = f"a keras.Model that returns {data.num_classes} logits, without a softmax"
    if not isinstance(model, keras.Model):
        raise _refused_model(name, accepted, f"It returned {type(model).__name__}.")
    if tuple(model.output_shape) != (None, data.num_classes):
        raise _refused_model(name, accepted, f"It returns {model.output_shape}.")
    if getattr(model.layers[-1], "activation", None) is keras.activations.softmax:
        raise _refused_model(name, accepted, "Its last layer ends in a softmax; leave it out.")
    return model


def _refused_model(name: str, accepted: str, advice: str) -> ConfigurationError:
    return ConfigurationError([Problem(MODEL_VARIABLE, name, accepted, advice)])


def build_optimizer(config: TrainerConfig, steps: int) -> keras.optimizers.Optimizer:
    """Build the optimizer that the settings name, for a run of `steps` steps."""
    rate: Any = config.learning_rate
    if config.learning_rate_schedule == "cosine":
        rate = keras.optimizers.schedules.CosineDecay(config.learning_rate, steps)
    if config.optimizer == "adam":
        return keras.optimizers.Adam(rate)
    momentum = 0.9 if config.optimizer == "momentum" else 0.0
    return keras.optimizers.SGD(rate, momentum=momentum)


@dataclass(frozen=True)
class Plan:
    """How the data are cut into steps and epochs."""

    cut: order.Slice
    seed: int
    epochs: int
    steps_per_epoch: int
    test_steps: int

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.epochs * self.steps_per_epoch


def make_plan(config: TrainerConfig, data: DataSet, num_replicas: int) -> Plan:
    """Cut the data as the settings say.

    Raises:
        ConfigurationError: the global batch size cannot be shared out among the replicas.
    """
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
    test_steps = cut.steps_per_pass(len(data.test))
    return Plan(cut, config.seed, config.epochs, steps_per_epoch, test_steps)


class Epochs:
    """Trains and evaluates epoch by epoch; iterate over it for each epoch's metrics."""

    def __init__(
        self, data: DataSet, plan: Plan, loop: Loop, pace: Pace, reporter: Reporter
    ) -> None:
        self._plan, self._loop, self._pace, self._reporter = plan, loop, pace, reporter
        self._training = distribute(
            loop.strategy,
            plan.cut,
            lambda part: order.training_batches(data.train, part, plan.seed),
        )
        self._testing = distribute(
            loop.strategy, plan.cut, lambda part: order.evaluation_batches(data.test, part)
        )

    def __iter__(self) -> Iterator[EpochMetrics]:
        """Train and evaluate one epoch for each item."""
        for epoch in range(1, self._plan.epochs + 1):
            started = time.monotonic()
            trained = self._train(epoch)
            train_seconds = time.monotonic() - started
            tested = self._evaluate(epoch)
            yield EpochMetrics(
                epoch=epoch,
                step=epoch * self._plan.steps_per_epoch,
                loss=trained.mean_loss,
                accuracy=trained.accuracy,
                test_loss=tested.mean_loss,
                test_accuracy=tested.accuracy,
                test_examples=tested.examples,
                examples_per_second=round(trained.examples / train_seconds, 1),
                seconds=round(time.monotonic() - started, 3),
            )

    def _train(self, epoch: int) -> Totals:
        before = (epoch - 1) * self._plan.steps_per_epoch

        def after_call(done: int) -> None:
            self._reporter.step(before + done)
            self._progress(epoch, "training", done, self._plan.steps_per_epoch)

        self._progress(epoch, "training", 0, self._plan.steps_per_epoch)
        self._pace.run(self._loop.train, self._training, self._plan.steps_per_epoch, after_call)
        totals = self._loop.totals()
        if not isfinite(totals.loss):
            message = f"the loss is {totals.loss} after step {before + self._plan.steps_per_epoch}"
            raise TrainingDivergedError(message)
        return totals

    def _evaluate(self, epoch: int) -> Totals:
        def after_call(done: int) -> None:
            self._progress(epoch, "evaluating", done, self._plan.test_steps)

        self._loop.average_statistics()
        self._pace.run(self._loop.evaluate, self._testing, self._plan.test_steps, after_call)
        return self._loop.totals()

    def _progress(self, epoch: int, what: str, done: int, total: int) -> None:
        self._reporter.doing(f"epoch {epoch}/{self._plan.epochs}  {what}: {done} of {total} steps")


def distribute(
    distribution: tf.distribute.Strategy,
    whole: order.Slice,
    make: Callable[[order.Slice], tf.data.Dataset],
) -> Any:
    """Return the strategy's iterator over the batches that `make` returns for each worker."""

    def for_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        local = whole.num_replicas // context.num_input_pipelines
        first = context.input_pipeline_id * local
        return make(order.Slice(whole.per_replica, whole.num_replicas, first, local))

    # On a CPU, "prefetching to the device" is one more copy: 11 % of the steps of mnist_cnn.
    to_device = bool(tf.config.list_physical_devices("GPU"))
    options = tf.distribute.InputOptions(experimental_fetch_to_device=to_device)
    iterator = iter(distribution.distribute_datasets_from_function(for_worker, options))
    KEPT_ITERATORS.append(iterator)
    return iterator


def save_model(
    config: TrainerConfig, data: DataSet, values: list[np.ndarray], reporter: Reporter
) -> None:
    """Write the trained model, from a copy that knows nothing of the strategy."""
    started = time.monotonic()
    copy = build_model(config.model, data)
    copy.set_weights(values)
    folder = config.model_dir or reporter.folder
    export.save(copy, folder)
    log.info("saved the model to %s in %.1f s", folder, time.monotonic() - started)
