"""The first batch: the replicas' shares, joined again, and given to the steps once more."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas, gathered, ring_of
from cluster_trainer.collectives.workers import Workers, workers_of
from cluster_trainer.engine.first_batch.way import Cut, Way
from cluster_trainer.engine.functions import function_of
from cluster_trainer.private import tensorflow_names

WHAT = "the first batch"


class NotComparableError(Exception):
    """The two ways cannot be compared; the text says why."""


@dataclass(frozen=True)
class Batch:
    """The first batch.

    Attributes:
        parts: the local replicas' shares.
        weights: how much of the batch each is.
        cuts: each one's share of the parts of the batch.
        whole: all of it.
    """

    parts: Sequence[Any]
    weights: Sequence[float]
    cuts: Sequence[Sequence[Cut]]
    whole: Any

    @classmethod
    def of(cls, shares: Sequence[Any], strategy: tf.distribute.Strategy) -> Self:
        """Join it from all replicas' shares; all workers call it.

        Raises:
            NotComparableError: on all workers: a replica has no examples, or rows of no fixed size.
        """
        if any(bool(is_whole) for _, _, *flags in shares for is_whole in flags):  # on all workers
            raise NotComparableError("every replica computes the whole batch")
        parts, weights = [one[0] for one in shares], [float(one[1]) for one in shares]
        rows, workers = [_rows(part) for part in parts], workers_of(strategy)
        if not all(workers.gather(int(all(map(all, rows)) and all(weights)), WHAT)):
            raise NotComparableError("it has too few examples, or sparse or ragged ones")
        return cls(parts, weights, _cuts(rows, workers), _gathered(parts, strategy))

    def ways(self) -> list[Way]:
        """Return the part that each local replica computes."""
        return [Way(cuts) for cuts in self.cuts]

    def whole_ways(self) -> list[Way]:
        """Return the whole batch for each local replica."""
        return [
            Way([*dict.fromkeys(Cut(0, one.of_batch, one.of_batch) for one in cuts)])
            for cuts in self.cuts
        ]


def _rows(part: Any) -> list[int]:
    """Return how many rows each dense part of a share has; 0 for a part that is not dense."""
    leaves = [leaf for leaf in tf.nest.flatten(part) if leaf is not None]
    if not all(isinstance(leaf, tf.Tensor) for leaf in leaves):
        return [0]
    return [int(leaf.shape[0]) for leaf in leaves if leaf.shape.rank]


def _cuts(rows: Sequence[Sequence[int]], workers: Workers) -> list[list[Cut]]:
    """Return each local replica's part of the batch, from the rows of its parts."""
    found: list[dict[Cut, None]] = [{} for _ in rows]
    for of_part in zip(*rows, strict=True):
        counts = workers.gather(sum(of_part), WHAT)
        start = sum(counts[: workers.rank])
        for cuts, mine in zip(found, of_part, strict=True):
            cuts[Cut(start, mine, sum(counts))] = None
            start += mine
    return [[*cuts] for cuts in found]


def _gathered(parts: Sequence[Any], strategy: tf.distribute.Strategy) -> Any:
    """Return the rows of all replicas, in order; values without rows are the same on all."""

    def gather(value: Any) -> Any:
        return gathered(value, WHAT) if value is not None and value.shape.rank else value

    each = tensorflow_names.for_each_replica(parts)
    return on_replicas(strategy, lambda part: tf.nest.map_structure(gather, part), each)


def on_replicas(
    strategy: tf.distribute.Strategy, function: Callable[[Any], Any], given: Any
) -> Any:
    """Return the result of a function that each replica runs, on this process's first replica.

    Workers of TensorFlow's cluster gather within a trace only.
    """

    def run(each: Any) -> Any:
        return strategy.run(function, args=(each,))

    is_cluster = ring_of(strategy) is None and Replicas.of(strategy).workers > 1
    found = (function_of(run) if is_cluster else run)(given)
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], found)


def iterator_of(batch: Any, spec: Any) -> Any:
    """Return an iterator that gives a batch once, like the one from which it was taken.

    Args:
        batch: a single one.
        spec: of that iterator, which may know less of the shapes: with it, a trace is the same.
    """
    one = tf.raw_ops.TensorDataset(
        components=tensorflow_names.to_tensor_list(spec, batch),
        output_shapes=tensorflow_names.get_flat_tensor_shapes(spec),
    )
    return iter(tensorflow_names.single(one, spec))
