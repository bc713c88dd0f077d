"""`mean`: combines the workers' results for their shares into a result for the whole batch."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.replicas import summed
from cluster_trainer.engine.replicas import statistics, step_context
from cluster_trainer.engine.replicas.metrics import left_totals
from cluster_trainer.loops.ring import ring_of_loop
from cluster_trainer.loops.weight import weight_of_share

WHAT = "cluster_trainer.mean"


def mean(value: Any) -> Any:
    """Return the mean of all workers' values, weighted by their numbers of examples.

    All workers must call it. Within the body of a loop over `share`, pass values that were computed
    from the current batch; after the loop, values that were computed from the whole pass. You may
    call it within `tf.function`. On one worker it returns the value.

    Args:
        value: a number, a tensor of the same shape on all workers, or a structure of them. Integers
            become float32. For a metric of Keras, the result over all workers' examples is
            returned. A `keras.metrics.Sum` counts a number for each step once for each worker.

    Returns:
        tensors, in the same structure.

    Raises:
        ConfigurationError: there are several workers, but no ring that sums in each step.
    """
    if isinstance(value, keras.metrics.Metric):
        return _result_of_all(value)
    leaves = [_as_floats(one) for one in tf.nest.flatten(value)]
    if ring_of_loop("mean"):
        weight = weight_of_share().variable
        leaves = _sums([tf.math.multiply_no_nan(one, tf.cast(weight, one.dtype)) for one in leaves])
    return tf.nest.pack_sequence_as(value, leaves)


def _result_of_all(metric: keras.metrics.Metric) -> Any:
    """Return a metric's result from the sums of its summable variables over all workers."""
    if ring_of_loop("mean") is None or left_totals.are_left(metric):
        return metric.result()
    summable = statistics.summed_of(metric.variables)
    totals = _sums([tf.convert_to_tensor(one.value) for one in summable])
    mapping = [*zip(summable, totals, strict=True)]
    with step_context.outside(), keras.StatelessScope(state_mapping=mapping):
        return metric.result()


def _sums(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    with process_ring.failure_told():
        return [tf.convert_to_tensor(one) for one in summed(values, WHAT)]


def _as_floats(value: Any) -> tf.Tensor:
    tensor = tf.convert_to_tensor(value)
    return tensor if tensor.dtype.is_floating else tf.cast(tensor, tf.float32)
