"""Rebuilds a tf.data pipeline so that a worker prepares only its own rows of each batch."""

from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data.batch_shares import weighted
from cluster_trainer.engine.data.pipelines import keeps_or_repeats_orders
from cluster_trainer.engine.data.sharding.plan import POSITIONS, Plan, is_map
from cluster_trainer.engine.data.sources.source import as_written
from cluster_trainer.private import tensorflow_names


def rows_of_shares(plan: Plan, replicas: Replicas) -> tf.data.Dataset | None:
    """Return the rows of each batch that this process needs, prepared by the pipeline's own steps.

    Each element is a flat tuple. Its first part, int64 [rows], repeats the number of rows of the
    whole batch. The others are the parts of the batch, [rows, …].

    Args:
        plan: the pipeline's plan, with steps for its own rows.
        replicas: the replicas that need the rows.

    Returns:
        the dataset; None if its batches might differ from the pipeline's:

        - From five replicas on, a short batch may have more rows for this process than a full one.
        - Workers with shares of different sizes do not read equally far ahead. If they repeat or
          cache shuffled data, and a script leaves a pass early, they have used up different numbers
          of orders.
    """
    size = int(tensorflow_names.batch_size_of(plan.batch))
    is_full = tensorflow_names.drops_remainder(plan.batch)
    rows_of_all = _rows(replicas, np.arange(1, size + 1))
    if not is_full and max(rows_of_all) > rows_of_all[-1]:
        return None
    if size % replicas.total and keeps_or_repeats_orders(plan.batch):
        return None

    def select(*window: Any) -> tf.data.Dataset:
        parts = tf.nest.flatten(window)
        examples = parts[0].cardinality()
        start, stop = _span(replicas, examples)
        counts = tf.data.Dataset.from_tensors(examples).repeat()
        mine = [one.skip(start).take(stop - start) for one in parts]
        return tf.data.Dataset.zip((counts, *mine))

    by_position = [one for one in plan.on_rows if type(one).__name__ in POSITIONS]
    others = [one for one in plan.on_rows if type(one).__name__ not in POSITIONS]
    # Options separate them: TensorFlow fuses a `shuffle` with a `repeat` that directly follows it,
    # which would use up a different number of orders.
    rows = reduce(_again, by_position, plan.whole.with_options(tf.data.Options()))
    mine = rows.window(size, drop_remainder=is_full).flat_map(as_written(select))
    mine = reduce(partial(_again, of_all=int(rows_of_all[-1]) / size), others, mine)
    parallel = tensorflow_names.parallel_calls_of(plan.batch)
    batches = mine.batch(int(rows_of_all[-1]), num_parallel_calls=parallel)
    return reduce(_again, plan.on_batches, batches)


@dataclass(frozen=True)
class OwnRows:
    """A pipeline that prepares the rows of this process's shares only.

    Attributes:
        rows: see `rows_of_shares`.
        replicas: the replicas whose shares the rows are.
        specs: the specifications of the local replicas' shares, as `cut` returns them.
    """

    rows: tf.data.Dataset
    replicas: Replicas
    specs: Any

    def shares(self, examples: tf.Tensor, *parts: tf.Tensor) -> tuple[Any, ...]:
        """Return the shares in an element of `rows`, in the form of `cut`'s result."""
        count = examples[0]
        bounds, shares = self.replicas.bounds(count), []
        first, _ = bounds[0]
        for (start, stop), (spec, *others) in zip(bounds, self.specs, strict=True):
            filled, weight = weighted(start, stop, count)
            mine = [
                tf.ensure_shape(part[start - first : filled - first], one.shape)
                for part, one in zip(parts, tf.nest.flatten(spec), strict=True)
            ]
            is_whole = (count == 1,) if len(others) > 1 else ()
            shares.append((tf.nest.pack_sequence_as(spec, mine), weight, *is_whole))
        return tuple(shares)


def _span(replicas: Replicas, examples: Any) -> tuple[Any, Any]:
    """Return where this process's rows of a batch begin and end; see `batch_shares.weighted`."""
    bounds = replicas.bounds(examples)
    (start, _), (last, stop) = bounds[0], bounds[-1]
    return start, tf.maximum(stop, last + 1)


def _rows(replicas: Replicas, examples: np.ndarray) -> np.ndarray:
    """Return how many rows this process needs of batches with these numbers of examples, [n]."""
    start, stop = _span(replicas, examples)
    return np.asarray(stop - start)


def _again(dataset: tf.data.Dataset, step: Any, *, of_all: float = 1.0) -> tf.data.Dataset:
    """Apply a step of the pipeline to a dataset that has the fraction `of_all` of its elements."""
    kind = type(step).__name__
    if is_map(step):
        prepare = _beside_count(tensorflow_names.traced_map(step))
        return dataset.map(prepare, **tensorflow_names.options_of_map(step))
    if kind == tensorflow_names.OPTIONS:  # they apply to all steps, at the end
        return dataset
    if kind == tensorflow_names.PREFETCH:
        buffer = tensorflow_names.buffer_of(step)
        # Do not read further ahead than before: a cache or the next shuffle may depend on it.
        return dataset.prefetch(max(1, round(of_all * buffer)) if buffer > 0 else buffer)
    apply = {
        tensorflow_names.TAKE: dataset.take,
        tensorflow_names.SKIP: dataset.skip,
        tensorflow_names.REPEAT: dataset.repeat,
    }
    return apply[kind](tensorflow_names.count_of(step))


def _beside_count(function: Any) -> Any:
    """Return a function that keeps an element's first part, and applies `function` to the rest."""

    def prepare(count: tf.Tensor, *parts: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return (count, *function(*parts))

    return as_written(prepare)
