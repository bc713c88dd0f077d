"""Reads arrays and other examples by row, in an order that is made from seed and pass."""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data import arrays
from cluster_trainer.engine.data.batch_shares import weighted
from cluster_trainer.engine.data.given_arrays import GivenArrays
from cluster_trainer.engine.data.pipelines import DIGESTED, content
from cluster_trainer.engine.data.row_dataset import EpochOrder, examples_at
from cluster_trainer.engine.data.same_data import of_batch
from cluster_trainer.engine.data.sources.source import Source, as_written, threads
from cluster_trainer.private import keras_names

# The number of batches in an endless stream: more than any run takes, and few enough for int64.
MANY_BATCHES = 2**40
# The number of batches that are prefetched, unless they are large.
PREFETCHED = 8
PREFETCHED_BYTES = 256 * 2**20
# The number of single examples that are read, perhaps from a file, to compare them.
READ = 4


class RowSource(Source):
    """Examples that are picked by their rows: each replica reads only its own."""

    compares = False  # whether some examples are read to compare them between workers
    is_endless = is_ours = begins_again = reads_own_rows = True

    def __init__(
        self, rows: EpochOrder, replicas: Replicas, pick: Callable[[tf.Tensor, tf.Tensor], Any]
    ) -> None:
        super().__init__(-(-rows.examples // rows.batch_size), replicas)
        self.calls_users = rows.take_work
        self._rows, self._pick, self.num_examples = rows, pick, rows.examples
        self._found: dict[str, str] | None = None
        short = rows.examples % rows.batch_size
        self.varies = bool(short)
        self.may_lack_examples = replicas.may_exceed(short or rows.batch_size)

    def found(self) -> dict[str, str]:
        """Return digests of a few examples, which are read once; see Source.found."""
        if self._found is None:
            self._found = self.found_anew()
        return self._found

    def found_anew(self) -> dict[str, str]:
        """Read these examples again; see Source.found_anew."""
        if not self.compares:
            return {}
        rows = np.unique(np.linspace(0, self._rows.examples - 1, READ, dtype=np.int64))
        return of_batch(self._pick(tf.constant(rows), tf.constant(0, tf.int64)))

    @property
    def examples_at(self) -> Callable[[int], int]:
        """A function from the number of steps to the number of examples; see Source.examples_at."""
        rows = self._rows
        return partial(examples_at, examples=rows.examples, batch_size=rows.batch_size)

    def shares(self, pass_number: int, first: int) -> tf.data.Dataset:
        """Return the shares of all passes from `pass_number` on, in one dataset."""
        assert self.num_batches  # noqa: S101  empty data are refused earlier
        begin = pass_number * self.num_batches + first
        steps = tf.data.Dataset.range(begin, MANY_BATCHES)
        options = tf.data.Options()
        options.autotune.enabled = False
        # Rewriting the pipeline copies the arrays that it reads from (measured).
        options.experimental_optimization.apply_default_optimizations = False
        share = self._alone if self.replicas.total == 1 else self._shared
        if self._rows.take_work:  # `_pick` may call a script's code, for example to decode pictures
            batches = steps.map(share, num_parallel_calls=threads(), deterministic=True)
        else:  # one thread copies batches faster than any model uses them
            batches = steps.map(as_written(share))
        return batches.prefetch(self._prefetched()).with_options(options)

    def _alone(self, step: tf.Tensor) -> Any:
        begin, examples, pass_number = self._place(step)
        return self._take(begin, begin + examples, self._rows.batch_size, pass_number)

    def _shared(self, step: tf.Tensor) -> tuple[tuple[Any, tf.Tensor], ...]:
        begin, examples, pass_number = self._place(step)
        size = self.replicas.share_of(self._rows.batch_size)
        shares = []
        for start, stop in self.replicas.bounds(examples):
            filled, weight = weighted(start, stop, examples)
            part = self._take(begin + start, begin + filled, size, pass_number)
            shares.append((part, weight))
        return tuple(shares)

    def _place(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return a batch's first position in its pass, its number of examples, and the pass."""
        rows = self._rows
        begin = step % self.num_batches * rows.batch_size
        examples = tf.constant(rows.batch_size, tf.int64)
        if rows.examples % rows.batch_size:
            examples = tf.minimum(rows.examples - begin, examples)
        return begin, examples, step // self.num_batches

    def _take(self, start: tf.Tensor, stop: tf.Tensor, size: int | None, number: tf.Tensor) -> Any:
        """Return the examples at positions `start` to `stop` of a pass.

        There are `size` examples, except in a short last batch; None: the number varies.
        """
        if size and self._rows.examples % self._rows.batch_size == 0:
            places = start + tf.range(size, dtype=tf.int64)
        else:
            places = tf.range(start, stop)
        if self._rows.seed is None:
            return self._pick(places, number)
        key = tf.stack([tf.constant(self._rows.seed, tf.int64), number])
        last = self._rows.examples - 1
        return self._pick(tf.random.experimental.index_shuffle(places, key, last), number)

    def _prefetched(self) -> int:
        here = self._rows.batch_size * self.replicas.local / self.replicas.total
        batch = max(1, self._rows.bytes_of_example * here)
        return int(max(1, min(PREFETCHED, PREFETCHED_BYTES // batch)))


class ArraySource(RowSource):
    """Arrays, whose rows are picked."""

    def __init__(
        self,
        adapter: keras_names.ArrayDataAdapter,
        replicas: Replicas,
        seed: int,
        given: GivenArrays,
    ) -> None:
        inputs = keras.tree.map_structure(
            lambda leaf: given.tensor(leaf, _taken), keras_names.arrays_of(adapter)
        )
        self._inputs = keras.tree.lists_to_tuples(inputs)
        examples = keras_names.num_examples(adapter)
        if not examples:
            raise ValueError("The arrays have no rows: there are no examples in them")
        # With "batch", Keras shuffles within a batch only, where the order has no meaning.
        shuffle = keras_names.shuffle_of(adapter)
        is_shuffled = bool(shuffle) and shuffle != "batch"
        rows = EpochOrder(
            examples=examples,
            batch_size=min(adapter.batch_size, examples),
            seed=seed if is_shuffled else None,
            bytes_of_example=sum(map(_bytes_of_all, tf.nest.flatten(self._inputs))) / examples,
        )
        super().__init__(rows, replicas, self._pick_from_arrays)

    @property
    def described(self) -> dict[str, str]:
        """The types and shapes of the arrays, and a digest of some examples."""
        leaves = [leaf for leaf in tf.nest.flatten(self._inputs) if _has_rows(leaf)]
        rows = np.unique(np.linspace(0, self._rows.examples - 1, DIGESTED, dtype=np.int64))
        digest = sha256()
        for leaf in leaves:
            digest.update(content(tf.gather(leaf, rows)))
        shapes = [f"{leaf.dtype.name}{list(leaf.shape)}" for leaf in leaves]
        return {
            "the arrays": ", ".join(shapes),
            "SHA-256 of some of their examples": digest.hexdigest()[:12],
        }

    def _pick_from_arrays(self, rows: tf.Tensor, _: tf.Tensor) -> Any:
        def pick(leaf: Any) -> Any:
            if isinstance(leaf, keras_names.TensorflowSparseWrapper):
                return keras_names.slice_tensorflow_sparse_wrapper(leaf, rows)
            return tf.gather(leaf, rows, axis=0) if tf.is_tensor(leaf) else None

        return keras.tree.traverse(pick, self._inputs)


def _has_rows(leaf: Any) -> bool:
    return bool(tf.is_tensor(leaf)) and not isinstance(leaf, tf.SparseTensor)


def _bytes_of_all(leaf: Any) -> int:
    if isinstance(leaf, tf.RaggedTensor):
        leaf = leaf.flat_values
    return int(np.prod(leaf.shape)) * leaf.dtype.size if _has_rows(leaf) else 0


def _taken(leaf: Any) -> Any:
    """Return a leaf of Keras's data in a form from which rows can be picked, cast as by Keras."""
    converted = keras_names.convert_to_sliceable(leaf, target_backend="tensorflow")
    return keras.tree.map_structure(_as_tensor, converted)


def _as_tensor(value: Any) -> Any:
    """Return an array as a tensor.

    It is a copy, as in Keras, because a callback may change the array. Only a mapped file is shared
    if possible.
    """
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind not in "biuf":
        return tf.convert_to_tensor(value)
    return arrays.as_tensor(value) if arrays.is_mapped(value) else arrays.copied(value)
