"""Cuts a global batch into the replicas' shares.

Arrays do not need this: `sources/rows.py` reads only the rows of a share.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data.pieces import TOGETHER, Component, Pieces, has_rows, rows_of


def weighted(start: Any, stop: Any, examples: Any) -> tuple[Any, tf.Tensor]:
    """Return the end of a share, at least `start` + 1, and the share's weight, float32 [].

    The weight is the fraction of the batch's examples in the share. An empty share borrows one
    example from its neighbour, with weight 0, so that no layer, loss or metric gets an empty share.
    """
    count = tf.cast(stop - start, tf.float32)
    weight = tf.math.divide_no_nan(count, tf.cast(examples, tf.float32))
    return tf.maximum(stop, start + 1), weight


def cut(
    batch: Any, replicas: Replicas, components: Sequence[Component] = TOGETHER
) -> tuple[tuple[Any, ...], ...]:
    """Return the local replicas' shares of a global batch.

    Args:
        batch: tensors [n, …], dense, ragged or sparse, in any structure. Every replica gets a
            tensor without dimensions as it is.
        replicas: the replicas that divide the batch.
        components: the parts that were batched together; see pieces.py.

    Returns:
        for each local replica its part of the batch and its weight, float32 []. If the parts may
        have different numbers of rows, there is a third value, bool []. If it is true, the batch
        cannot be cut, and each replica computes all of it.
    """
    batch = tf.nest.map_structure(_as_tensor, batch)
    pieces = Pieces(tf.nest.flatten(batch), components, replicas.total)
    count = tf.cast(pieces.count, tf.int64)
    is_whole = (count == 1,) if pieces.may_be_one else ()
    shares = []
    for start, stop in replicas.bounds(count):
        filled, weight = weighted(start, stop, count)
        part = tf.nest.map_structure(_taker(start, filled, pieces, replicas), batch)
        shares.append((part, weight, *is_whole))
    return tuple(shares)


def count_in(batch: Any) -> int:
    """Return the number of examples in a batch of tensors; 1 if none has a dimension."""
    leaves = [leaf for leaf in tf.nest.flatten(batch) if has_rows(leaf)]
    return int(rows_of(leaves[0])) if leaves else 1


def rows_known(batch: Any) -> set[int | None]:
    """Return the numbers of rows of a batch's parts; None stands for an unknown number."""
    return {
        leaf.shape[0] if leaf.shape.rank else None
        for leaf in tf.nest.flatten(batch)
        if has_rows(leaf)
    }


def without_rows(leaf: Any) -> Any:
    """Return the specification of a part of a batch, with an unknown number of rows."""
    if not has_rows(leaf):
        return leaf
    if isinstance(leaf, tf.Tensor):
        return tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype)
    return tf.type_spec_from_value(leaf)


def handed_out(
    batch: Any, strategy: tf.distribute.Strategy, local: int
) -> list[tuple[Any, tf.Tensor]]:
    """Return the local replicas' parts of a distributed batch, each with its size, float32 []."""
    parts = [
        tf.nest.map_structure(
            lambda value, index=index: strategy.experimental_local_results(value)[index], batch
        )
        for index in range(local)
    ]
    return [(part, tf.cast(rows_of(tf.nest.flatten(part)[0]), tf.float32)) for part in parts]


def _as_tensor(leaf: Any) -> Any:
    if isinstance(leaf, tf.experimental.Optional):
        return None  # Keras's own datasets have an Optional in place of None
    if leaf is None or isinstance(leaf, (tf.SparseTensor, tf.RaggedTensor)):
        return leaf
    return tf.convert_to_tensor(leaf)


def _taker(start: tf.Tensor, stop: tf.Tensor, pieces: Pieces, replicas: Replicas) -> Any:
    """Return a function that takes a part's rows of the pieces from `start` to `stop`."""

    def take(leaf: Any) -> Any:
        if not has_rows(leaf):
            return leaf
        size = tf.cast(pieces.of_a_part(rows_of(leaf)), tf.int64)
        if isinstance(leaf, tf.SparseTensor):
            others = leaf.dense_shape[1:]
            begin = tf.concat([[start * size], tf.zeros_like(others)], 0)
            return tf.sparse.slice(leaf, begin, tf.concat([[(stop - start) * size], others], 0))
        part = leaf[start * size : stop * size]
        fixed = None if isinstance(leaf, tf.RaggedTensor) else _fixed_size(leaf, pieces, replicas)
        return tf.ensure_shape(part, [fixed, *leaf.shape[1:]]) if fixed else part

    return take


def _fixed_size(leaf: Any, pieces: Pieces, replicas: Replicas) -> int | None:
    """Return the number of rows of a part in each share; None: it differs, or is unknown."""
    rows, count = leaf.shape[0], pieces.count
    if not (rows and isinstance(count, int)):
        return None
    share = 1 if count == 1 else replicas.share_of(count)
    return share * (rows // count) if share else None
