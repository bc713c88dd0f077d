"""Averages layers' statistics after a step whose shares differ in size.

Each replica keeps its own moving statistics, such as BatchNormalization's, and they are averaged
before they are read. This mean is exact only if all shares have the same size. After other steps,
for example on a last batch with fewer examples than replicas, all replicas get the statistics that
one device computes from the shares' own:

    one replica:  m' = r m + (1 - r) s
    one device:   M' = r M + (1 - r) Σ w s = Σ (w m' + r (1 / N - w) m)

Here, m is a replica's statistic, s that of its share, and r the momentum. M is the mean of all m, w
the share's weight, and N the number of replicas.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas, count, ring_of, summed
from cluster_trainer.engine.replicas import step_context


class Moved(NamedTuple):
    """A statistic that a step has changed.

    Attributes:
        variable: the statistic.
        before: its value before the step.
        kept: the factor with which the step multiplied that value.
    """

    variable: Any
    before: tf.Tensor
    kept: float


def average(moved: Sequence[Moved], weight: tf.Tensor) -> None:
    """Give statistics the values of one device, if the step's shares differ in size.

    TensorFlow's collectives cannot sum in a branch. With them, statistics are averaged in any case.

    Args:
        moved: the statistics; they change on this replica by its share alone.
        weight: the fraction of the batch's examples that this replica has, float32 [].
    """
    if not moved:
        return
    copies = [step_context.own(one.variable) for one in moved]
    strategy = tf.distribute.get_strategy()
    with _not_by_xla():
        if ring_of(strategy) and Replicas.of(strategy).local == 1:
            own = [tf.identity(copy) for copy in copies]
            new = tf.cond(_differ_in_size(weight), lambda: _of_all(moved, own, weight), lambda: own)
        else:
            new = _of_all(moved, copies, weight)
        for copy, value in zip(copies, new, strict=True):
            copy.assign(value)


def _differ_in_size(weight: tf.Tensor) -> tf.Tensor:
    """Tell whether the shares differ in size, bool []; all replicas find the same.

    A share differs from the mean of all by less than one example. So either all weights are exactly
    float32's 1 / N, or none is.
    """
    equal = 1 / tf.cast(count(), tf.float64)
    return tf.identity(weight) != tf.cast(equal, weight.dtype)


def _of_all(moved: Sequence[Moved], own: Sequence[Any], weight: tf.Tensor) -> list[tf.Tensor]:
    """Return M'; see the module's docstring."""
    exact = tf.cast(weight, tf.float64)
    others = 1 / tf.cast(count(), tf.float64) - exact
    parts = [
        # A borrowed example's statistics may be NaN.
        tf.math.multiply_no_nan(tf.cast(value, tf.float64), exact)
        + others * _kept(one, value) * tf.cast(one.before, tf.float64)
        for one, value in zip(moved, own, strict=True)
    ]
    sums = summed(parts, "statistics of uneven shares")
    return [tf.cast(one, value.dtype) for one, value in zip(sums, own, strict=True)]


def _kept(moved: Moved, value: tf.Tensor) -> tf.Tensor:
    """Return how much of a statistic the step has kept, float64 []: all of it if nothing moved it.

    For example, a layer may be called under a condition.
    """
    has_moved = tf.reduce_any(tf.convert_to_tensor(value) != moved.before)
    return tf.where(has_moved, tf.constant(moved.kept, tf.float64), tf.constant(1.0, tf.float64))


def _not_by_xla() -> AbstractContextManager[Any]:
    is_eager = tf.executing_eagerly()
    return nullcontext() if is_eager else tf.xla.experimental.jit_scope(compile_ops=False)
