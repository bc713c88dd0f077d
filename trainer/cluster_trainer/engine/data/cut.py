"""Which examples of a global batch are each replica's."""

from typing import Any

import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas


def weighted(start: Any, stop: Any, examples: Any) -> tuple[Any, tf.Tensor]:
    """Return where a share ends if it must not be empty, and its weight, float32 [].

    An empty share gets an example of its neighbour's, and the weight 0: no layer, loss or metric
    need know what to do without any.
    """
    count = tf.cast(stop - start, tf.float32)
    weight = tf.math.divide_no_nan(count, tf.cast(examples, tf.float32))
    return tf.maximum(stop, start + 1), weight


def cut(batch: Any, replicas: Replicas) -> tuple[tuple[Any, tf.Tensor], ...]:
    """Return the local replicas' shares of a global batch, each with its weight.

    Args:
        batch: tensors [n, …], dense, ragged or sparse, in any structure; what has no dimension is
            given to every replica.
        replicas: which there are, and which are wanted.
    """
    batch = tf.nest.map_structure(_as_tensor, batch)
    leaves = [leaf for leaf in tf.nest.flatten(batch) if _has_examples(leaf)]
    examples = _count_of_all(leaves) if leaves else tf.constant(1, tf.int64)
    shares = []
    for start, stop in replicas.bounds(examples):
        filled, weight = weighted(start, stop, examples)
        fixed = _fixed_size(leaves[0], replicas) if leaves else None
        part = tf.nest.map_structure(_taker(start, filled, fixed), batch)
        shares.append((part, weight))
    return tuple(shares)


def count_in(batch: Any) -> int:
    """Return how many examples a batch of tensors has; 1 where nothing in it has a dimension."""
    leaves = [leaf for leaf in tf.nest.flatten(batch) if _has_examples(leaf)]
    return int(_count(leaves[0])) if leaves else 1


def fixed_rows(batch: Any) -> int | None:
    """Return how many examples a batch has; None where that is not known when it is traced."""
    leaves = [leaf for leaf in tf.nest.flatten(batch) if _has_examples(leaf)]
    return leaves[0].shape[0] if leaves else None


def handed_out(
    batch: Any, strategy: tf.distribute.Strategy, local: int
) -> list[tuple[Any, tf.Tensor]]:
    """Return the local replicas' parts of what TensorFlow has shared out, each with its size.

    Args:
        batch: in any structure, with a value of each of the strategy's local replicas.
        strategy: which has shared it out.
        local: how many replicas this process has.
    """
    parts = [
        tf.nest.map_structure(
            lambda value, index=index: strategy.experimental_local_results(value)[index], batch
        )
        for index in range(local)
    ]
    return [(part, tf.cast(_count(tf.nest.flatten(part)[0]), tf.float32)) for part in parts]


def _as_tensor(leaf: Any) -> Any:
    if isinstance(leaf, tf.experimental.Optional):
        return None  # as a tf.data.Dataset that Keras makes has None
    if leaf is None or isinstance(leaf, (tf.SparseTensor, tf.RaggedTensor)):
        return leaf
    return tf.convert_to_tensor(leaf)


def _has_examples(leaf: Any) -> bool:
    return leaf is not None and leaf.shape.rank != 0


def _count(leaf: Any) -> tf.Tensor:
    if isinstance(leaf, tf.SparseTensor):
        return leaf.dense_shape[0]
    if isinstance(leaf, tf.RaggedTensor):
        return leaf.nrows(out_type=tf.int64)
    return tf.shape(leaf, out_type=tf.int64)[0]


def _count_of_all(leaves: list[Any]) -> tf.Tensor:
    """Return how many examples all have.

    Raises:
        tf.errors.InvalidArgumentError: one has as many rows as the batch has not: nobody knows
            which are a replica's. A ValueError where it is seen before.
    """
    first, *others = map(_count, leaves)
    alike = [
        tf.debugging.assert_equal(
            first,
            other,
            "With several replicas all parts of a batch need as many rows as it has examples",
        )
        for other in others
    ]
    with tf.control_dependencies([one for one in alike if one is not None]):
        return tf.identity(first)


def _fixed_size(leaf: Any, replicas: Replicas) -> int | None:
    """Return how many examples each share has, where that is always the same number."""
    size = leaf.shape[0]
    return replicas.share_of(size) if size else None


def _taker(start: tf.Tensor, stop: tf.Tensor, fixed: int | None) -> Any:
    def take(leaf: Any) -> Any:
        if not _has_examples(leaf):
            return leaf
        if isinstance(leaf, tf.SparseTensor):
            begin = tf.concat([[start], tf.zeros_like(leaf.dense_shape[1:])], 0)
            size = tf.concat([[stop - start], leaf.dense_shape[1:]], 0)
            return tf.sparse.slice(leaf, begin, size)
        part = leaf[start:stop]
        if fixed and not isinstance(leaf, tf.RaggedTensor):
            part = tf.ensure_shape(part, [fixed, *leaf.shape[1:]])
        return part

    return take
