"""Updates a replica's own copies of variables, in place of Keras's update of all copies."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cluster_trainer.engine.replicas import step_context
from cluster_trainer.private import keras_names, tensorflow_names


def is_reduced() -> bool:
    """Tell whether an optimizer applies the gradients of all replicas here."""
    part = step_context.current()
    return part is not None and part.is_reduced


def _only_looks() -> bool:
    """Tell whether all variables stay unchanged; see engine/first_batch/check.py."""
    part = step_context.current()
    return part is not None and part.first_batch is not None


def update_own_copies(self: Any, grads: Any, trainable_variables: Any, learning_rate: Any) -> None:
    """Update this replica's copies of variables."""
    if _only_looks():
        return
    for gradient, variable in zip(grads, trainable_variables, strict=True):
        self.update_step(gradient, step_context.own(variable), learning_rate)


def decay_own_copies(self: Any, variables: Sequence[Any]) -> None:
    """Let the weights of this replica's copies decay."""
    if self.weight_decay is None or _only_looks():
        return
    for variable in variables:
        copy = step_context.own(variable)
        if keras_names.is_decayed(self, copy):
            rate = tf.cast(self.learning_rate, copy.dtype)
            copy.assign_sub(copy * tf.cast(self.weight_decay, copy.dtype) * rate)


def accumulate_in_own(_: Any, grads: Sequence[Any], acc_grads: Sequence[Any]) -> None:
    """Add gradients to this replica's accumulators."""
    if _only_looks():
        return
    for gradient, accumulator in zip(grads, acc_grads, strict=True):
        copy = step_context.own(accumulator)
        copy.assign(copy + gradient)


def overwrite_own(self: Any, trainable_variables: Sequence[Any]) -> None:
    """Give this replica's copies the moving averages that `use_ema` keeps."""
    if _only_looks():
        return
    averages = keras_names.averages_of(self)
    for variable, average in zip(trainable_variables, averages, strict=True):
        step_context.own(variable).assign(step_context.own(average))


def assign(self: Any, value: Any) -> None:
    """Assign to a variable; an optimizer assigns to this replica's copies of its variables.

    Otherwise TensorFlow would send their values from the first replica, which it cannot do under a
    condition. A mirrored variable is not read after the assignment: TensorFlow would sum a metric's
    variable over all replicas for a value that is not used.
    """
    variable = keras_names.value_of(self)
    value = tf.cast(value, variable.dtype)
    part = step_context.current()
    if part is not None and part.is_of_loop and self.aggregation == "sum":
        # A metric in a script's own loop: a borrowed example is counted where it belongs.
        is_counted = part.has_examples | tf.reduce_all(value == 0)  # 0 is assigned by a reset
        value = tf.where(is_counted, value, variable)
    if is_reduced():
        step_context.own(self).assign(value)
    elif isinstance(variable, tensorflow_names.DistributedVariable):
        variable.assign(value, read_value=False)
    else:
        variable.assign(value)
