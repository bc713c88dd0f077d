"""The averages of `synchronized` BatchNorm: over all replicas' examples.

Keras's own function sums over the replicas of a strategy, of which a process in a ring has none,
and counts the example that a replica without examples has borrowed.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import nn

from cluster_trainer.collectives.replicas import ring_of, summed
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.engine.replicas.replaced import replace


def average_over_all() -> None:
    """Let synchronized layers see the whole batch within a step of several replicas."""
    replace(
        nn, "_compute_moments_sync", _moments_of_all, lambda: step_context.current() is not None
    )


def _moments_of_all(x: tf.Tensor, axes: Any, keepdims: bool) -> tuple[tf.Tensor, tf.Tensor]:  # noqa: FBT001
    """Return mean and variance over all replicas' examples, as Keras's function does."""
    share = step_context.current()
    counts = tf.cast(share.weight > 0, x.dtype) if share else tf.ones([], x.dtype)
    parts = [
        counts * tf.reduce_sum(values, axes, keepdims=True)
        for values in (x, tf.square(x), tf.ones_like(x))
    ]
    total, of_squares, count = _summed(*parts)
    mean = tf.math.divide_no_nan(total, count)
    variance = tf.maximum(tf.math.divide_no_nan(of_squares, count) - tf.square(mean), 0.0)
    if keepdims:
        return mean, variance
    return tf.squeeze(mean, axes), tf.squeeze(variance, axes)


@tf.custom_gradient
def _summed(*values: tf.Tensor) -> Any:
    """Return the sums over all replicas; so are their gradients, since all depend on them."""

    def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
        return _each_summed(upstream, "training (BatchNorm backwards)")

    return _each_summed(values, "training (BatchNorm)"), gradient


def _each_summed(values: Sequence[tf.Tensor], what: str) -> list[tf.Tensor]:
    """Return the sums; by TensorFlow one by one, as Keras does for NCCL's sake."""
    if ring_of(tf.distribute.get_strategy()):
        return list(summed(values, what))
    return [total for value in values for total in summed([value])]
