"""Gives sums of sparse gradients each row as often as one device has it.

One device does not add up rows that occur twice, as those of a token that two examples have. The
difference matters to operations that are not linear, such as clipping and Adam's squares.
"""

from collections.abc import Callable

import tensorflow as tf

from cluster_trainer.collectives.replicas import Gradient, count
from cluster_trainer.engine.replicas.state.writes import CALLS

SHAPES = ("Shape", "ShapeN", "Size", "Rank")
# Operations that yield a batch.
BATCHES = ("IteratorGetNext", "OptionalGetValue")


def way_of(gradient: Gradient) -> Callable[[Gradient], Gradient]:
    """Return a function for the sum of all replicas' gradients, given this replica's gradient."""
    if not isinstance(gradient, tf.IndexedSlices):
        return _as_it_is
    if _has_unique_rows(gradient):
        return _of_unique_rows
    return _as_it_is if _is_of_examples(gradient.indices) else _of_same_rows


def _as_it_is(gradient: Gradient) -> Gradient:
    return gradient


def _has_unique_rows(gradient: tf.IndexedSlices) -> bool:
    """Tell whether `tf.unique` has made a sparse gradient's indices, as for sparse inputs.

    No row then occurs twice on one device. The origin of an eager gradient is unknown.
    """
    indices = gradient.indices
    if not hasattr(indices, "graph"):
        return False
    while indices.op.type in ("Cast", "Identity", "Reshape"):
        indices = indices.op.inputs[0]
    return indices.op.type in ("Unique", "UniqueV2") and indices.value_index == 0


def _of_unique_rows(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Return a sparse sum with each row once; several replicas may have had the same row."""
    indices, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(indices))
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def _is_of_examples(indices: tf.Tensor) -> bool:
    """Tell whether rows' indices certainly come from a batch's examples, such as tokens.

    The indices of an embedding of positions come from constants or from a batch's shape. The origin
    of eager indices, and of those that a function within the step computes, is unknown.
    """
    known: set[int] = set()
    left = [indices]
    while left:
        one = left.pop()
        if id(one) in known or not hasattr(one, "graph") or one.dtype == tf.resource:
            continue
        known.add(id(one))
        kind, graph = one.op.type, one.graph
        if kind in BATCHES:
            return True
        if kind == "Placeholder":
            outside = [outer for outer, inner in getattr(graph, "captures", ()) if inner is one]
            if not outside:  # an argument
                return True
            left += outside
        elif kind not in (*SHAPES, *CALLS):
            left += one.op.inputs
    return False


def _of_same_rows(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Return a sparse sum with each row once, if all replicas have the same distinct rows.

    An example is an embedding of positions. One device sums its gradient over the batch before it
    becomes sparse, so that no row occurs twice.
    """
    total = count()
    indices, values = gradient.indices, gradient.values

    def by_replica(part: tf.Tensor) -> tf.Tensor:
        return tf.reshape(part, tf.concat([[total, -1], tf.shape(part)[1:]], 0))

    def once() -> tuple[tf.Tensor, tf.Tensor]:
        return by_replica(indices)[0], tf.reduce_sum(by_replica(values), 0)

    def are_alike() -> tf.Tensor:
        rows = by_replica(indices)
        different = tf.size(tf.unique(rows[0])[0])
        return tf.reduce_all(rows == rows[:1]) & (different == tf.size(rows[0]))

    is_even = tf.shape(indices)[0] % total == 0
    alike = tf.cond(is_even, are_alike, lambda: False)
    indices, values = tf.cond(alike, once, lambda: (indices, values))
    values = tf.ensure_shape(values, [None, *gradient.values.shape[1:]])
    return tf.IndexedSlices(values, indices, gradient.dense_shape)
