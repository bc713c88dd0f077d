"""The batches of a run, as the strategy's iterators over them."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from cluster_trainer.config import TrainerConfig
from cluster_trainer.data import augment, order
from cluster_trainer.data.examples import DataSet


@dataclass(frozen=True)
class Batches:
    """Distributed iterators over a run's batches; the training one begins at the run's step."""

    training: Any
    testing: Any


def make_batches(
    distribution: tf.distribute.Strategy,
    data: DataSet,
    cut: order.Slice,
    config: TrainerConfig,
    first_step: int,
) -> Batches:
    """Return the iterators over the batches; the training one begins with step `first_step`."""
    training = distribute(
        distribution,
        cut,
        lambda part: order.training_batches(
            data.train, part, config.seed, first_step, augment.BY_NAME[config.augment]
        ),
    )
    testing = distribute(distribution, cut, lambda part: order.evaluation_batches(data.test, part))
    return Batches(training, testing)


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
    to_device = bool(tf.config.list_logical_devices("GPU"))
    options = tf.distribute.InputOptions(experimental_fetch_to_device=to_device)
    iterator = iter(distribution.distribute_datasets_from_function(for_worker, options))
    _keep_for_ever(iterator)
    return iterator


def _keep_for_ever(iterator: Any) -> None:
    """Let an iterator outlive Python itself, by one reference that nobody holds.

    Its destructor waits for tf.data's autotuning thread, which sleeps for up to ten seconds
    (measured), and at the end of a process even a module's own names are cleared.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(iterator))
