"""Divides gradients into buckets: one bucket is summed while the next is still computed."""

from collections.abc import Iterable, Sequence

import tensorflow as tf

from cluster_trainer.private import tensorflow_names

BYTES_PER_RANK, MOST = 2**20, 8
"""The limits for buckets. Each but the last has at least BYTES_PER_RANK bytes for each rank,
because a sum has a hop for each rank. There are at most MOST, because all sums are in memory until
the last one is complete."""


def buckets_of(values: Sequence[tf.Tensor], dtype: tf.DType, ranks: int) -> list[list[int]]:
    """Return the buckets: the positions of values that are summed together, the last values first.

    The result depends on the values' shapes when the step is traced. The caller must make these the
    same on all workers. If a shape is unknown, there is one bucket.

    Args:
        values: gradients in the order of the layers; the backward pass begins with the last.
        dtype: the type in which they are summed.
        ranks: the number of workers if none is missing.
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
    """Return, for each bucket but the first, operations to hold up until the previous sum begins.

    They are the first operations that only this bucket needs: those with an input from operations
    that earlier buckets need. All further ones depend on them. Operations with effects count as
    needed by the first bucket, because TensorFlow runs them before any sum. Otherwise a sum might
    wait for an operation that waits for the sum.

    Args:
        packed: each bucket's numbers, traced before the sums.
    """
    known = _needed_for([packed[0].op, *filter(_has_effects, packed[0].graph.get_operations())])
    later = []
    for bucket in packed[1:]:
        found = _needed_for([bucket.op], known)
        later.append([one for one in found if any(given.op in known for given in one.inputs)])
        known |= found
    return later


def hold_up(operations: Iterable[tf.Operation], until: tf.Tensor) -> None:
    """Let operations begin only after a tensor is computed.

    Otherwise a single thread would compute the last layers' gradients at the very end, because
    TensorFlow's threads first run the operation that became ready last.
    """
    for operation in operations:
        tensorflow_names.run_after(operation, until.op)


def _needed_for(
    operations: Sequence[tf.Operation], known: Iterable[tf.Operation] = ()
) -> set[tf.Operation]:
    """Return operations and all operations that they need, except known ones."""
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
