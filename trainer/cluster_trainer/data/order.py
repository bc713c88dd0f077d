"""The order of the examples: a pure function of seed, pass and position.

A *pass* goes through all examples once, in an order drawn from (seed, pass). It is cut into global
batches; replica r of R takes the r-th of R equal slices of each. So R replicas see exactly the
batches that one replica with the same global batch size would see, nothing is left out or seen
twice in a pass, and a run can go on at any step without replaying what came before.

The last global batch of a pass is short. Its slices are filled up to their fixed shape with
examples that carry weight 0: they count neither in the loss nor in the metrics.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from cluster_trainer.data import arrays
from cluster_trainer.data.augment import Augmentation
from cluster_trainer.data.examples import Examples

# Steps in an endless stream: more than any run takes, few enough for int64 positions.
MANY_STEPS = 2**40
# Batches of one replica that are ready before they are asked for: so many, unless they are large.
PREFETCHED = 8
PREFETCHED_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Slice:
    """Which part of each global batch one worker takes, as the replicas it holds.

    Attributes:
        per_replica: examples of one replica in one step.
        num_replicas: replicas of all workers together.
        first_replica: this worker's first replica in the order of all.
        local_replicas: how many replicas this worker holds.
    """

    per_replica: int
    num_replicas: int
    first_replica: int = 0
    local_replicas: int = 1

    @property
    def global_batch_size(self) -> int:
        """Examples of one step on all replicas together."""
        return self.per_replica * self.num_replicas

    def steps_per_pass(self, num_examples: int) -> int:
        """Return how many global batches hold `num_examples`; the last one may be short."""
        return -(-num_examples // self.global_batch_size)


def training_batches(
    examples: Examples,
    cut: Slice,
    seed: int,
    first_step: int = 0,
    augmentation: Augmentation | None = None,
) -> tf.data.Dataset:
    """Make the endless stream of one worker's training batches, in a shuffled order.

    Yields for each step and each local replica in turn a tuple of
        inputs: [per_replica, …] as a model gets them (`Examples.taker`);
        labels: int64 [per_replica];
        weights: float32 [per_replica], 1 for an example, 0 for filling;
        batch_examples: float32 [], the examples in the whole global batch.

    Args:
        examples: all of them.
        cut: which of them the worker takes.
        seed: of the order and of the augmentation.
        first_step: where the stream begins.
        augmentation: what happens to the pictures; None: nothing.
    """
    num_examples, steps_per_pass = len(examples), cut.steps_per_pass(len(examples))

    def select(step: tf.Tensor, replica: tf.Tensor) -> tuple[tf.Tensor, ...]:
        in_pass = step % steps_per_pass
        positions, weights = _positions(in_pass, replica, cut, num_examples)
        rows = _shuffled(positions, seed, step // steps_per_pass, num_examples)
        left = num_examples - in_pass * cut.global_batch_size
        return rows, weights, tf.minimum(left, cut.global_batch_size)

    def change(inputs: tf.Tensor, rows: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        if augmentation is None:
            return inputs
        sightings = step // steps_per_pass * num_examples + rows
        return augmentation.apply(inputs, seed, sightings)

    steps = tf.data.Dataset.range(first_step, MANY_STEPS)
    # Without .repeat() the cardinality is finite, and tf.distribute then spends an all-reduce at
    # each step on whether every worker still has a batch.
    return _batches(examples, steps, cut, select, change if augmentation else None).repeat()


def evaluation_batches(examples: Examples, cut: Slice) -> tf.data.Dataset:
    """Make the endless repetition of one pass in the set's own order; see training_batches."""
    num_examples = len(examples)

    def select(step: tf.Tensor, replica: tf.Tensor) -> tuple[tf.Tensor, ...]:
        positions, weights = _positions(step, replica, cut, num_examples)
        return positions, weights, tf.constant(cut.global_batch_size, tf.int64)

    steps = tf.data.Dataset.range(cut.steps_per_pass(num_examples))
    return _batches(examples, steps, cut, select).repeat()


def _positions(
    step_in_pass: tf.Tensor, replica: tf.Tensor, cut: Slice, num_examples: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return one slice's positions in its pass, int64 [per_replica], and their weights."""
    start = step_in_pass * cut.global_batch_size + replica * cut.per_replica
    positions = start + tf.range(cut.per_replica, dtype=tf.int64)
    return positions % num_examples, tf.cast(positions < num_examples, tf.float32)


def _shuffled(
    positions: tf.Tensor, seed: int, pass_number: tf.Tensor, num_examples: int
) -> tf.Tensor:
    """Map positions of a pass to rows, by a permutation that is computed where it is needed."""
    key = tf.stack([tf.constant(seed, tf.int64), pass_number])
    return tf.random.experimental.index_shuffle(positions, key, num_examples - 1)


def _batches(
    examples: Examples,
    steps: tf.data.Dataset,
    cut: Slice,
    select: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, ...]],
    change: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
) -> tf.data.Dataset:
    """Make the batches of one worker's replicas.

    Args:
        examples: all of them.
        steps: int64 [], one after another.
        cut: which replicas.
        select: from step and replica to the rows of the slice, int64 [per_replica], their weights,
            and the number of examples in the whole global batch.
        change: from inputs, their rows and the step to what the inputs look like then.
    """
    take, labels = examples.taker(), arrays.as_tensor(examples.labels.astype(np.int64))
    replicas = range(cut.first_replica, cut.first_replica + cut.local_replicas)
    local = tf.data.Dataset.from_tensor_slices(tf.constant(list(replicas), tf.int64))
    slices = steps.flat_map(lambda step: local.map(lambda replica: (step, replica)))

    def gather(step: tf.Tensor, replica: tf.Tensor) -> tuple[tf.Tensor, ...]:
        rows, weights, batch_examples = select(step, replica)
        chosen = take(rows)
        if change:
            chosen = change(chosen, rows, step)
        return chosen, tf.gather(labels, rows), weights, tf.cast(batch_examples, tf.float32)

    options = tf.data.Options()
    options.autotune.enabled = False
    # Rewriting the pipeline copies the arrays that it reads from (measured), mapped files too.
    options.experimental_optimization.apply_default_optimizations = False
    # One thread copies batches faster than any model takes them; real work takes all there are.
    threads = tf.config.threading.get_inter_op_parallelism_threads() or os.cpu_count()
    works = examples.decodes or change
    parallel = {"num_parallel_calls": threads, "deterministic": True} if works else {}
    batches = slices.map(gather, **parallel)
    return batches.prefetch(_prefetched(examples, cut)).with_options(options)


def _prefetched(examples: Examples, cut: Slice) -> int:
    """Return how many of a replica's batches may be ready: at least one beside the one in use."""
    batch_bytes = 4 * cut.per_replica * math.prod(examples.input_shape)
    return max(1, min(PREFETCHED, PREFETCHED_BYTES // batch_bytes))


def rows_of_pass(num_examples: int, seed: int, pass_number: int) -> np.ndarray:
    """Return one pass's order, int64 [num_examples]: for tests and for looking at it."""
    positions = tf.range(num_examples, dtype=tf.int64)
    rows = _shuffled(positions, seed, tf.constant(pass_number, tf.int64), num_examples)
    return np.asarray(rows)
