"""Gradients in buckets: those of the last layers are summed while the others are computed."""

from collections.abc import Iterable, Sequence

import tensorflow as tf

from cluster_trainer.private import tensorflow_names

BYTES_PER_RANK, MOST = 2**20, 8
"""The smallest number of bytes per rank of a bucket, except the last one, because a sum has a hop
for each rank; and the largest number of buckets, whose sums are all in memory until the last one is
there."""


def buckets_of(values: Sequence[tf.Tensor], dtype: tf.DType, ranks: int) -> list[list[int]]:
    """Return the positions of the values that are summed in one message, the last ones first.

    It depends on their shapes when the step is traced. The caller must make these the same on all
    workers.

    Args:
        values: gradients in the order of the layers: the backward pass comes to the last one first.
        dtype: the type in which they are summed.
        ranks: how many workers there are when none is missing.
    """
    everything = [*range(len(values))]
    if not all(value.shape.is_fully_defined() for value in values):
        return [everything]
    sizes = [value.shape.num_elements() * dtype.size for value in values]
    total = sum(sizes)
    count = max(1, min(MOST, total // (BYTES_PER_RANK * ranks)))
    buckets: list[list[int]] = [[]]
    for place in reversed(everything):
        if sum(sizes[one] for one in buckets[-1]) * count >= total > 0:
            buckets.append([])
        buckets[-1].append(place)
    return [sorted(bucket) for bucket in buckets]


def needed_later(packed: Sequence[tf.Tensor]) -> list[list[tf.Operation]]:
    """Return, for each later bucket, the operations that wait until the sum before has begun.

    Of the operations that no earlier bucket needs, these are the ones that take something from
    those that one does: the others wait for them. What has effects counts as needed by the first
    bucket, since TensorFlow does it before any sum. So no sum waits for what waits for it.

    Args:
        packed: each bucket's numbers, traced, and no sums after them yet.
    """
    known = _needed_for([packed[0].op, *filter(_has_effects, packed[0].graph.get_operations())])
    later = []
    for bucket in packed[1:]:
        found = _needed_for([bucket.op], known)
        later.append([one for one in found if any(given.op in known for given in one.inputs)])
        known |= found
    return later


def hold_up(operations: Iterable[tf.Operation], until: tf.Tensor) -> None:
    """Let operations begin only when a tensor is there.

    A TensorFlow thread runs last the operation that has been ready for longest. A single thread
    would go back through all layers, and then compute their gradients, those of the last layer at
    the end.
    """
    for operation in operations:
        tensorflow_names.run_after(operation, until.op)


def _needed_for(
    operations: Sequence[tf.Operation], known: Iterable[tf.Operation] = ()
) -> set[tf.Operation]:
    """Return operations, and all that they need, without known ones."""
    found: set[tf.Operation] = set()
    seen, left = {*known}, [*operations]
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            found.add(one)
            left += [*(given.op for given in one.inputs), *one.control_inputs]
    return found


def _has_effects(operation: tf.Operation) -> bool:
    return tensorflow_names.is_stateful(operation) or any(
        given.dtype == tf.resource for given in operation.inputs
    )
