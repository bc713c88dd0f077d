"""Computes losses of shares whose weighted mean over replicas is the loss of the global batch.

A share's loss depends on its kind:

- A mean over examples is left alone. Only Keras's divisions by the number of replicas are undone
  (`step_context.seeing_one_replica`).
- A sum over examples is multiplied by the ratio of the batch to the share. This includes implicit
  sums: `tape.gradient` of a vector is the gradient of its sum, and Keras sums the values of
  `add_loss`.
- A mean over the elements that a mask or weights keep is divided by their number in the whole
  batch.
- A hinge loss converts labels of 0 and 1 if the whole batch has no others.

Numbers of a whole share that your own `train_step` reports to a `keras.metrics.Mean` are weighted
by the share, because on one device each batch counts once.
"""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import keras
import tensorflow as tf
from keras import metrics, ops

from cluster_trainer.collectives.replicas import summed
from cluster_trainer.engine.replicas import example_axis, step_context
from cluster_trainer.private import keras_names

log = logging.getLogger("trainer")
MEANS = ("mean", "sum_over_batch_size")
_reduce_values = keras_names.REDUCE_VALUES.own
_apply_mask = keras_names.APPLY_MASK.own
_update_mean = metrics.Mean.update_state
_gradient = tf.GradientTape.gradient
_aggregate = keras_names.AGGREGATE_ADDITIONAL_LOSS.own


def _share() -> step_context.Share:
    part = step_context.current()
    assert part is not None  # noqa: S101  the functions here are called only if `is_shared`
    return part


def _of_all(count: Any) -> tf.Tensor:
    """Return the divisor with which weighted means of all shares add up to the batch's mean.

    It is the count over all replicas, multiplied by this replica's weight. In a step that the
    worker takes by itself, it is the share's own count.
    """
    count, part = tf.stop_gradient(tf.convert_to_tensor(count)), _share()
    if part.is_own_step:
        return count
    weight = tf.cast(part.weight, count.dtype)
    mine = tf.where(weight > 0, count, 0)  # a borrowed example belongs to another replica
    (total,) = summed([mine], "a loss (size of the batch)")
    return total * weight


def reduced(
    values: Any, sample_weight: Any = None, reduction: str | None = "sum_over_batch_size"
) -> Any:
    """Reduce a share's losses, so that the weighted mean over replicas is Keras's for the batch."""
    is_scalar = tuple(values.shape) == ()
    if reduction == "sum" and not is_scalar:
        return _as_of_batch(tf.reduce_sum(values))
    if reduction == "mean_with_sample_weight" and sample_weight is not None and not is_scalar:
        divisor = _of_all(tf.reduce_sum(tf.cast(sample_weight, values.dtype)))
        return tf.math.divide_no_nan(tf.reduce_sum(values), divisor)
    return _reduce_values(values, sample_weight, reduction)


def masked(sample_weight: Any, mask: Any, dtype: Any, reduction: str | None) -> Any:
    """Apply a mask to weights like Keras, but count the kept elements in the whole batch."""
    if mask is None or reduction not in MEANS:
        return _apply_mask(sample_weight, mask, dtype, reduction)
    mask = tf.cast(mask, dtype)
    total = tf.cast(tf.size(mask), dtype)
    each = tf.math.divide_no_nan(total, _of_all(tf.reduce_sum(mask)))
    weights = mask * each
    if sample_weight is None:
        return weights
    weights, sample_weight = keras_names.squeeze_or_expand_to_same_rank(
        weights, tf.cast(sample_weight, dtype)
    )
    return sample_weight * weights


def hinge_labels(labels: Any) -> Any:
    """Convert labels of 0 and 1 to -1 and 1 like Keras, if the whole batch has no other labels."""
    others = tf.cast((labels != 0) & (labels != 1), labels.dtype)
    return tf.where(_of_all(tf.reduce_sum(others)) == 0, 2 * labels - 1, labels)


def update_mean(self: Any, values: Any, sample_weight: Any = None) -> None:
    """Update a mean; within a step, values of the share as a whole are weighted by the share."""
    part = step_context.current()
    if part is not None and sample_weight is None:
        values = ops.convert_to_tensor(values)
        if _is_of_share(values, part):
            sample_weight = tf.fill(tf.shape(values), part.weight)
    _update_mean(self, values, sample_weight)


def _is_of_share(values: Any, part: step_context.Share) -> bool:
    """Tell whether values are a number, or a row of numbers, for all examples of a share together.

    A row of numbers counts only if the share's size is unknown when the step is traced. If the size
    is known, all shares have it, and the row needs no weight. In a step that runs eagerly, a row
    gets no weight either, because it may have a number for each example.
    """
    shape = tf.TensorShape(values.shape)
    return shape.rank == 0 or (None in part.rows and shape.is_fully_defined())


def is_of_each(value: Any) -> bool:
    """Tell whether a tensor has a row for each example of the share.

    If the share's size is unknown when a step is traced, then so is the tensor's. So is that of the
    examples which a mask keeps.
    """
    part = step_context.current()
    if part is None or not isinstance(value, tf.Tensor) or not value.shape.rank:
        return False
    if not part.rows:  # nothing was cut, for example in a loop over numbers of episodes
        return False
    if example_axis.is_reduced(value):
        return False
    size = value.shape[0]
    return size is None or (size > 0 and size in part.rows)


def _as_of_batch(value: Any) -> Any:
    """Divide a share's sum, or a factor of it, by the share's weight; 0 for a borrowed example."""
    part = _share()
    if part.is_of_loop and not part.rows:  # nothing was cut
        return value
    return tf.math.divide_no_nan(value, tf.cast(part.of_batch, value.dtype))


def gradient_of_batch(
    self: tf.GradientTape,
    target: Any,
    sources: Any,
    output_gradients: Any = None,
    unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
) -> Any:
    """Return gradients like TensorFlow; for variables, the gradients of the whole batch's sum."""
    targets = tf.nest.flatten(target)
    if output_gradients is None and _are_variables(sources):
        of_each = [*map(is_of_each, targets)]
        _warn_of_vectors(targets, of_each)
        if any(of_each):
            output_gradients = [
                _as_of_batch(tf.ones_like(one)) if is_one else tf.ones_like(one)
                for one, is_one in zip(targets, of_each, strict=True)
            ]
    return _gradient(self, target, sources, output_gradients, unconnected_gradients)


def _warn_of_vectors(targets: Sequence[Any], of_each: Sequence[bool]) -> None:
    """Warn of vectors in a script's own loop whose values may, or may not, belong to examples.

    In a `fit`, the comparison of the first batch shows it.
    """
    part = _share()
    if not part.is_of_loop or not part.rows:
        return
    for one, is_one in zip(targets, of_each, strict=True):
        if not isinstance(one, tf.Tensor) or not one.shape.rank or example_axis.is_reduced(one):
            continue
        if not is_one:
            _warn_of_losses_unlike_rows()
        elif one.shape[0]:
            _warn_of_losses_like_rows()


@cache
def _warn_of_losses_unlike_rows() -> None:
    """Warn once that losses of another number than the share's rows count as means."""
    log.warning(
        "A loop over `share` takes the gradient of a vector with more or fewer losses than its "
        "share has rows. Each counts as a mean over the batch. If they are losses of examples "
        "instead, such as those that a mask keeps or those of all tokens, the gradient is that of "
        "one device divided by the number of workers: sum them by one of keras.losses with "
        "reduction='sum', and give it the mask as sample_weight."
    )


@cache
def _warn_of_losses_like_rows() -> None:
    """Warn once that only the number of losses says that they are losses of examples."""
    log.warning(
        "A loop over `share` takes the gradient of a vector with as many losses as its share has "
        "rows. They count as one loss for each example. If each of them is a mean over the batch "
        "instead, such as one loss for each output, the gradient is that of one device times the "
        "number of workers: take the gradient of tf.reduce_sum(losses)."
    )


def _are_variables(sources: Any) -> bool:
    """Tell whether all sources are variables. Inputs, for example, have a gradient for each row."""
    return all(isinstance(one, (tf.Variable, keras.Variable)) for one in tf.nest.flatten(sources))


def aggregated(self: Any, loss: Any) -> Any:
    """Sum the values of `add_loss` like Keras; a sum over a share counts as the batch's sum."""
    total = _aggregate(self, loss)
    return _as_of_batch(total) if is_of_each(loss) else total
