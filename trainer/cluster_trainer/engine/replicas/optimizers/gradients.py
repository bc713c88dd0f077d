"""Sums gradients over all replicas, weighted by the replicas' shares of the batch."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.replicas import Gradient, begin_sums, count, gathered
from cluster_trainer.engine.replicas import sparse, step_context
from cluster_trainer.engine.replicas.optimizers import refusals
from cluster_trainer.engine.waits import SUMS
from cluster_trainer.private import at_call, keras_names
from cluster_trainer.problems import ConfigurationError


def over_all_replicas(
    optimizer: Any,
    gradients: Sequence[Any],
    given_variables: Sequence[Any] | None,
    part: step_context.Share,
) -> Sequence[Any]:
    """Return the sums of the replicas' gradients, and the maxima for overwritten variables.

    In a step that a worker takes by itself, return the share's own gradients.
    """
    refusals.must_be_of_the_strategy(optimizer)
    if any(map(refusals.is_clipped, gradients)):
        refusals.warn_of_clipped_shares()
    refusals.must_know(optimizer, given_variables or ())
    variables = given_variables or variables_of(optimizer)
    factor = _factor(optimizer, gradients, variables)
    if part.is_own_step:
        return _own(optimizer, gradients, variables, part)
    gradients = _of_known_shapes(gradients, variables)
    places = _overwriting(gradients, variables)
    summed = [None if place in places else one for place, one in enumerate(gradients)]
    sums = begin_sums_of(summed) if factor is None else begin_means(summed, factor)
    over_all = part.waits.measured(SUMS, summed, sums) if part.waits else sums()
    for place, most in zip(
        places, _maxima([gradients[place] for place in places], part.weight), strict=True
    ):
        over_all[place] = most
    if part.first_batch is not None:
        part.first_batch.note_gradients(gradients, over_all)
    return over_all


def _factor(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> tf.Tensor | None:
    """Return the factor of the replica's gradients in the sum; None: it is already applied.

    Also note the variables that the optimizer trains. A function of the script's own that applies
    gradients notes them again at each call.

    Raises:
        ConfigurationError: the function was traced in the other kind of step; see rounds.py.
    """
    part = step_context.current()
    assert part is not None  # noqa: S101  the gradients are a share's
    is_own_step = part.is_own_step
    trained = {id(step_context.own(one)) for one in variables}
    gathers = any(isinstance(one, tf.IndexedSlices) for one in gradients)

    def find(part: step_context.Share) -> Any:
        if part.is_own_step != is_own_step:
            raise ConfigurationError([refusals.TRACED_OTHERWISE])
        part.optimizers[id(optimizer)] = optimizer
        part.trained |= trained
        part.gathers |= gathers
        is_weighted = optimizer in part.weighted
        refusals.must_be_as_went_back(part, is_weighted=is_weighted)
        return tf.ones([]) if is_weighted else part.weight

    def outside() -> Any:  # for example after a loop over `share`: the function still sums
        return 1 / count()

    key = "gradients", id(optimizer), next(_numbers)
    factor = step_context.of_step(find, key, outside=outside)
    is_here = part.graph is at_call.graph_here()
    return None if is_here and optimizer in part.weighted else factor


def begin_means(
    gradients: Sequence[Gradient | None], weight: tf.Tensor
) -> Callable[[], list[Gradient | None]]:
    """Begin to compute the means of all replicas' gradients, weighted by their shares.

    Returns:
        a function that waits for the means and returns them.
    """
    return begin_sums_of([None if one is None else _times(one, weight) for one in gradients])


def begin_sums_of(gradients: Sequence[Gradient | None]) -> Callable[[], list[Gradient | None]]:
    """Begin to sum all replicas' gradients; return a function that waits for the sums."""
    present = [one for one in gradients if one is not None]
    wait = begin_sums(present, "training (gradients)", wire=process_ring.gradients_wire())
    ways = [sparse.way_of(one) for one in present]

    def sums() -> list[Gradient | None]:
        found = (way(total) for way, total in zip(ways, wait(), strict=True))
        return [None if one is None else next(found) for one in gradients]

    return sums


def _times(gradient: Gradient, weight: tf.Tensor) -> Gradient:
    """Return a gradient multiplied by a weight. With weight 0, NaN becomes 0, too."""
    weight = tf.cast(weight, gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        values = tf.math.multiply_no_nan(gradient.values, weight)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return tf.math.multiply_no_nan(gradient, weight)


def _own(
    optimizer: Any,
    gradients: Sequence[Gradient | None],
    variables: Sequence[Any],
    part: step_context.Share,
) -> Sequence[Gradient | None]:
    """Return the share's own gradients, for a step that the worker takes by itself.

    Without examples they are 0, and still applied, so that step counters stay equal.
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        part.problems.append(refusals.SCALES_LOSS)
    if _overwriting(gradients, variables):
        part.problems.append(refusals.OVERWRITES)
    return [None if one is None else _times(one, part.of_gradient) for one in gradients]


def _overwriting(gradients: Sequence[Any], variables: Sequence[Any]) -> list[int]:
    """Return the positions of values that overwrite their variables, and are not gradients.

    Examples are the scales and histories of a layer that was quantized to float8.
    """
    return [
        place
        for place, (gradient, variable) in enumerate(zip(gradients, variables, strict=False))
        if gradient is not None and getattr(variable, "overwrite_with_gradient", False)
    ]


def _maxima(values: Sequence[tf.Tensor], weight: tf.Tensor) -> list[tf.Tensor]:
    """Return each value's exact maximum over the replicas that have examples.

    Keras accumulates new values in the same way (`_overwrite_variables_directly_with_gradients`).
    The maximum of all shares' maxima is the batch's maximum.
    """
    found: dict[int, tf.Tensor] = {}
    for dtype in dict.fromkeys(value.dtype for value in values):
        places = [place for place, value in enumerate(values) if value.dtype == dtype]
        flat = [tf.reshape(values[place], [-1]) for place in places]
        row = tf.where(weight > 0, tf.concat(flat, 0), dtype.min)[tf.newaxis]
        most = tf.reduce_max(gathered(row, "training (new values)"), 0)
        for place, one in zip(places, tf.split(most, [*map(tf.size, flat)]), strict=True):
            shaped = tf.reshape(one, tf.shape(values[place]))
            found[place] = tf.ensure_shape(shaped, values[place].shape)
    return [found[place] for place in range(len(values))]


def _of_known_shapes(
    gradients: Sequence[Gradient | None], variables: Sequence[Any]
) -> Sequence[Gradient | None]:
    """Return gradients with their variables' shapes, so that all workers pack them equally.

    TensorFlow does not always know a gradient's shape, for example that of a Dense layer after
    texts of any length. It may know the shape on a worker whose shares all had one size, but not on
    another worker.
    """
    if len(gradients) != len(variables):  # Keras refuses it
        return gradients
    return [
        tf.ensure_shape(one, variable.shape)
        if isinstance(one, tf.Tensor) and not one.shape.is_fully_defined()
        else one
        for one, variable in zip(gradients, variables, strict=True)
    ]


def variables_of(optimizer: Any) -> Sequence[Any]:
    """Return the variables that an optimizer was built with; a call of `apply` may omit them."""
    return keras_names.trained_by(getattr(optimizer, "inner_optimizer", optimizer))


_numbers = itertools.count()
