"""Computes the mean and variance of `synchronized` BatchNorm over all replicas' examples.

Keras's own function sums over the replicas of a strategy only, and processes in a ring have no
strategy. It also counts borrowed examples, and does not sum over replicas if there is a mask.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.layers import BatchNormalization

from cluster_trainer.collectives.replicas import ring_of, summed
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.private import keras_names
from cluster_trainer.problems import Problem

SUMS_IN_EACH_STEP = Problem(
    "TRAINER_SYNC_EVERY",
    "above 1, with a synchronized BatchNormalization",
    "1, or layers without `synchronized=True`",
    "Statistics of the whole batch are summed over the workers in each step.",
)
_moments = keras_names.MOMENTS.own
_numbers = itertools.count()


def moments_of_all(x: tf.Tensor, axes: Any, keepdims: bool) -> tuple[tf.Tensor, tf.Tensor]:  # noqa: FBT001
    """Return mean and variance over all replicas' examples, like Keras's function."""
    total, of_squares, count = _sums_of_all((x, tf.square(x), tf.ones_like(x)), axes)
    mean = tf.math.divide_no_nan(total, count)
    variance = tf.maximum(tf.math.divide_no_nan(of_squares, count) - tf.square(mean), 0.0)
    if keepdims:
        return mean, variance
    return tf.squeeze(mean, axes), tf.squeeze(variance, axes)


def moments_of_layer(
    self: BatchNormalization, inputs: tf.Tensor, mask: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mean and variance over the elements of all replicas' examples that a mask keeps."""
    if mask is None or not self.synchronized:
        return _moments(self, inputs, mask)  # type: ignore[no-any-return]
    axes = keras_names.reduction_axes(self)
    epsilon = keras.config.epsilon()  # as in Keras, it is added to the divisor
    is_there = tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(inputs))
    x = tf.where(is_there, inputs, 0)
    sums = _sums_of_all((x, tf.square(x), tf.cast(is_there, x.dtype)), axes)
    total, of_squares, count = (tf.squeeze(one, axes) for one in sums)
    mean = total / (count + epsilon)
    distances = of_squares - 2 * mean * total + tf.square(mean) * count
    return mean, tf.maximum(distances, 0.0) / (count + epsilon)


def _sums_of_all(values: Sequence[tf.Tensor], axes: Any) -> list[tf.Tensor]:
    """Return the sums over the axes, and over all replicas' examples, with the axes kept."""
    share = step_context.current()
    if share and share.is_own_step:
        share.problems.append(SUMS_IN_EACH_STEP)
    dtype = values[0].dtype
    counts = tf.cast(share.weight > 0, dtype) if share else tf.ones([], dtype)
    return list(_summed(*(counts * tf.reduce_sum(one, axes, keepdims=True) for one in values)))


@tf.custom_gradient
def _summed(*values: tf.Tensor) -> Any:
    """Return the sums over all replicas; in the backward pass, gradients are summed, too.

    Each replica's gradients must be weighted by its share of the batch. Either the loss was
    weighted before, or optimizers/gradients.py will weight the gradients.
    """
    assumed: set[bool] = set()

    def find(share: step_context.Share) -> tf.Tensor:
        share.summed_backwards |= assumed  # by a function that was traced earlier
        return share.weight

    weight = None
    if step_context.is_shared():
        # Read before `gradient`: in a branch, TensorFlow's gradients cannot read a variable.
        found = step_context.of_step(find, ("BatchNorm", next(_numbers)))
        weight = tf.cast(tf.identity(found), values[0].dtype)

    def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
        what = "training (BatchNorm backwards)"
        share = step_context.current()
        if share is None or weight is None:
            return _each_summed(upstream, what)
        assumed.add(share.is_weighted)
        share.summed_backwards |= assumed
        if share.is_weighted:
            return _each_summed(upstream, what)
        sums = _each_summed([tf.math.multiply_no_nan(one, weight) for one in upstream], what)
        return [tf.math.divide_no_nan(one, weight) for one in sums]

    return _each_summed(values, "training (BatchNorm)"), gradient


def _each_summed(values: Sequence[tf.Tensor], what: str) -> list[tf.Tensor]:
    """Return the sums; without a ring, sum one value at a time, as Keras does for NCCL."""
    if ring_of(tf.distribute.get_strategy()):
        return list(summed(values, what))
    return [total for value in values for total in summed([value], what)]
