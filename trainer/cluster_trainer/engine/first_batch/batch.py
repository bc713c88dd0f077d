"""Joins the replicas' shares of the first batch, and returns them to the steps afterwards."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas, gathered, ring_of
from cluster_trainer.collectives.workers import Workers, workers_of
from cluster_trainer.engine.data.pieces import rows_of
from cluster_trainer.engine.first_batch.way import Cut, Way
from cluster_trainer.engine.functions import function_of
from cluster_trainer.private import tensorflow_names

WHAT = "the first batch"


class NotComparableError(Exception):
    """The two ways cannot be compared; the text gives the reason."""


@dataclass(frozen=True)
class Batch:
    """The first batch.

    Attributes:
        parts: the local replicas' shares.
        weights: the fraction of the batch in each local share.
        cuts: for each local replica, its rows of the batch's parts.
        whole: the whole batch.
    """

    parts: Sequence[Any]
    weights: Sequence[float]
    cuts: Sequence[Sequence[Cut]]
    whole: Any

    @classmethod
    def of(cls, shares: Sequence[Any], strategy: tf.distribute.Strategy) -> Self:
        """Join all replicas' shares to the whole batch; all workers call this.

        Raises:
            NotComparableError: a replica has no examples, a share is sparse, a strategy of
                TensorFlow's would have to gather texts, or every replica computes the whole batch.
                All workers raise it.
        """
        if any(bool(is_whole) for _, _, *flags in shares for is_whole in flags):  # on all workers
            raise NotComparableError("every replica computes the whole batch")
        parts, weights = [one[0] for one in shares], [float(one[1]) for one in shares]
        rows, workers = [_rows(part) for part in parts], workers_of(strategy)
        if not all(workers.gather(int(all(map(all, rows)) and all(weights)), WHAT)):
            raise NotComparableError("it has too few examples, or sparse ones")
        if ring_of(strategy) is None and any(map(_has_texts, parts)):
            raise NotComparableError("TensorFlow's strategies cannot gather texts")
        return cls(parts, weights, _cuts(rows, workers), joined(parts, strategy))

    def ways(self) -> list[Way]:
        """Return a way for each local replica that computes its share."""
        return [Way(cuts) for cuts in self.cuts]

    def whole_ways(self) -> list[Way]:
        """Return a way for each local replica that computes the whole batch."""
        return [
            Way([*dict.fromkeys(Cut(0, one.of_batch, one.of_batch) for one in cuts)])
            for cuts in self.cuts
        ]


def _rows(part: Any) -> list[int]:
    """Return how many rows each part of a share has; 0 for a part that is sparse."""
    leaves = [leaf for leaf in tf.nest.flatten(part) if leaf is not None]
    if not all(isinstance(leaf, (tf.Tensor, tf.RaggedTensor)) for leaf in leaves):
        return [0]
    return [int(rows_of(leaf)) for leaf in leaves if leaf.shape.rank]


def _has_texts(part: Any) -> bool:
    return any(leaf is not None and leaf.dtype == tf.string for leaf in tf.nest.flatten(part))


def _cuts(rows: Sequence[Sequence[int]], workers: Workers) -> list[list[Cut]]:
    """Return each local replica's rows of the batch's parts, from the numbers of rows."""
    found: list[dict[Cut, None]] = [{} for _ in rows]
    for of_part in zip(*rows, strict=True):
        counts = workers.gather(sum(of_part), WHAT)
        start = sum(counts[: workers.rank])
        for cuts, mine in zip(found, of_part, strict=True):
            cuts[Cut(start, mine, sum(counts))] = None
            start += mine
    return [[*cuts] for cuts in found]


def joined(parts: Sequence[Any], strategy: tf.distribute.Strategy, what: str = WHAT) -> Any:
    """Return the rows of all replicas, in order; values without rows are the same on all."""

    def gather(value: Any) -> Any:
        if isinstance(value, tf.RaggedTensor):
            return _ragged(value, gather(value.values), what)
        return gathered(value, what) if value is not None and value.shape.rank else value

    each = tensorflow_names.for_each_replica(parts)
    return on_replicas(strategy, lambda part: tf.nest.map_structure(gather, part), each)


def _ragged(mine: tf.RaggedTensor, values: Any, what: str) -> tf.RaggedTensor:
    """Return the rows of all replicas, from a replica's own and all replicas' values."""
    if mine.uniform_row_length is not None:
        rows = tf.reduce_sum(gathered(mine.nrows()[tf.newaxis], what))
        return tf.RaggedTensor.from_uniform_row_length(values, mine.uniform_row_length, rows)
    return tf.RaggedTensor.from_row_lengths(values, gathered(mine.row_lengths(), what))


def on_replicas(
    strategy: tf.distribute.Strategy, function: Callable[[Any], Any], given: Any
) -> Any:
    """Run a function on each replica, and return the result of this process's first replica.

    Workers of TensorFlow's cluster can gather only within a trace, so the function is traced there.
    """

    def run(each: Any) -> Any:
        return strategy.run(function, args=(each,))

    is_cluster = ring_of(strategy) is None and Replicas.of(strategy).workers > 1
    found = (function_of(run) if is_cluster else run)(given)
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], found)


def iterator_of(batch: Any, spec: Any) -> Any:
    """Return an iterator that yields one batch, once.

    Args:
        batch: the batch.
        spec: the element specification of the iterator from which the batch was taken. Its shapes
            may be less specific than the batch's. With the same specification, the steps need no
            second trace.
    """
    one = tf.raw_ops.TensorDataset(
        components=tensorflow_names.to_tensor_list(spec, batch),
        output_shapes=tensorflow_names.get_flat_tensor_shapes(spec),
    )
    return iter(tensorflow_names.single(one, spec))
