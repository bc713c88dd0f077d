"""Gradients are summed over all replicas first; whatever looks at them does so afterwards.

Left to themselves under TensorFlow, Keras' optimizers sum last (`_backend_update_step` in
keras/src/optimizers/base_optimizer.py, and backend/tensorflow/optimizer.py): each replica clips its
own part, which is another training than on one device; and LossScaleOptimizer looks for overflows
on the first replica alone. So (measured) an overflow on another replica of the worker was
overlooked, and all weights became NaN; and of several workers one skipped a step in which the
others waited for it, for ever.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf


def summed(gradients: Sequence[tf.Tensor | None]) -> list[tf.Tensor | None]:
    """Return the sums of all replicas' gradients; call it in a replica context."""
    there = [one for one in gradients if one is not None]
    sums = iter(tf.distribute.get_replica_context().all_reduce("SUM", there) if there else ())
    return [None if one is None else next(sums) for one in gradients]


def leave_summing_out(optimizer: keras.optimizers.Optimizer) -> None:
    """Let an optimizer that is built take its gradients for the sums that they are."""
    for one in all_of(optimizer):
        one._all_reduce_sum_gradients = _as_they_are  # noqa: SLF001  Keras has no public way


def give_summing_back(optimizer: keras.optimizers.Optimizer) -> None:
    """Let an optimizer sum again, for whoever uses it next."""
    for one in all_of(optimizer):
        del one._all_reduce_sum_gradients  # noqa: SLF001


def all_of(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """Return an optimizer that is built, or those that it hands the gradients to."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return all_of(optimizer.inner_optimizer)
    if isinstance(optimizer, keras.optimizers.MultiOptimizer):
        return list(optimizer.optimizers)
    return [optimizer]


def _as_they_are(gradients_and_variables: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return list(gradients_and_variables)
