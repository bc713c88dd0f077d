"""Losses of each example, which TensorFlow and Keras sum over the batch without being told.

`tape.gradient` of a vector is the gradient of its sum, and Keras sums what `add_loss` is given. Of
a share that is a sum over the share's examples: like any other sum, it stands for as many times
more as the batch is larger (losses.py).
"""

from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.engine.replicas import step_context
from cluster_trainer.private import keras_names

_gradient = tf.GradientTape.gradient
_aggregate = keras_names.AGGREGATE_ADDITIONAL_LOSS.own


def is_of_each(value: Any) -> bool:
    """Tell whether a tensor has a row for each example of the share.

    A share's size may be unknown when a step is traced; then so is the vector's.
    """
    part = step_context.current()
    if part is None or not isinstance(value, tf.Tensor) or not value.shape.rank:
        return False
    size = value.shape[0]
    return size is None or (size > 0 and size in part.rows)


def _as_of_batch(value: Any) -> Any:
    """Return a share's sum, or what multiplies it, as the batch's; 0 of a borrowed example."""
    part = step_context.current()
    assert part is not None  # noqa: S101  `is_shared` was asked
    return tf.math.divide_no_nan(value, tf.cast(part.weight, value.dtype))


def gradient_of_batch(
    self: tf.GradientTape,
    target: Any,
    sources: Any,
    output_gradients: Any = None,
    unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
) -> Any:
    """Return gradients as TensorFlow does; with respect to variables those of the batch's sum."""
    targets = tf.nest.flatten(target)
    if output_gradients is None and _are_variables(sources) and any(map(is_of_each, targets)):
        output_gradients = [
            _as_of_batch(tf.ones_like(one)) if is_of_each(one) else tf.ones_like(one)
            for one in targets
        ]
    return _gradient(self, target, sources, output_gradients, unconnected_gradients)


def _are_variables(sources: Any) -> bool:
    """Tell whether all are; anything else, such as an input, has gradients of its own rows."""
    return all(isinstance(one, (tf.Variable, keras.Variable)) for one in tf.nest.flatten(sources))


def aggregated(self: Any, loss: Any) -> Any:
    """Sum what `add_loss` was given as Keras does; of a share, as the batch's sum."""
    total = _aggregate(self, loss)
    return _as_of_batch(total) if is_of_each(loss) else total
