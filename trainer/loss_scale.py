"""Loss scaling for float16, the same on all replicas.

Keras' LossScaleOptimizer skips a step whose gradients are not finite, and halves the scale. It
looks at the first replica's gradients alone, which it takes to be summed over all replicas already
(`_tf_apply` in keras/src/optimizers/loss_scale_optimizer.py), while under TensorFlow the optimizer
that it wraps sums them later. So (measured) an overflow on another replica of the worker is
overlooked, and all weights become NaN; and of several workers one skips a step in which the others
wait for it, for ever.
"""

from collections.abc import Sequence

import keras
import tensorflow as tf


def needed_by(optimizer: keras.optimizers.Optimizer) -> bool:
    """Tell whether the optimizer skips steps whose gradients are not finite."""
    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def spread_overflow(gradients: Sequence[tf.Tensor | None]) -> list[tf.Tensor | None]:
    """Return this replica's gradients; with NaNs, if any replica's are not finite.

    So all replicas find the same, and skip the same step. Call it in a replica context: it costs an
    all-reduce of one number. Each replica's own gradients are looked at and not their sum, which is
    in float32 and out of float16's overflows' reach.
    """
    finite = [tf.reduce_all(tf.math.is_finite(one)) for one in gradients if one is not None]
    mine = tf.where(tf.reduce_all(finite), 0.0, float("nan"))
    of_all = tf.distribute.get_replica_context().all_reduce("SUM", mine)
    first = next(index for index, one in enumerate(gradients) if one is not None)
    return [one + of_all if index == first else one for index, one in enumerate(gradients)]
