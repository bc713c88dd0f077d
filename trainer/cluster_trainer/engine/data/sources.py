"""Where batches come from: all that Keras's `fit` takes, as each replica's shares of a batch.

A *pass* goes through all batches once. Arrays and PyDatasets are shuffled in an order that is a
function of seed and pass alone, so that any number of workers sees the same batches, and a run can
begin at any batch. A `tf.data.Dataset` and a generator give their batches themselves: each worker
reads them all and takes its shares.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from copy import copy
from functools import partial
from hashlib import sha256
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas, ring_of
from cluster_trainer.engine.data import arrays, pipelines
from cluster_trainer.engine.data.comparing import of_batch
from cluster_trainer.engine.data.cut import cut, weighted
from cluster_trainer.engine.data.given import GivenArrays
from cluster_trainer.engine.data.pieces import TOGETHER, Component, fewest_pieces
from cluster_trainer.engine.data.pipelines import DIGESTED, content
from cluster_trainer.engine.data.random_access import RandomAccess, is_random_access
from cluster_trainer.engine.data.row_dataset import EpochOrder, RowDataset, examples_at
from cluster_trainer.private import keras_names
from cluster_trainer.processors import available_cpus

log = logging.getLogger("trainer")
# Batches in an endless stream: more than any run takes, few enough for int64 positions.
MANY_BATCHES = 2**40
# Batches that are ready before they are asked for: so many, unless they are large.
PREFETCHED = 8
PREFETCHED_BYTES = 256 * 2**20
# Single examples that are read to compare them; from a file, say.
READ = 4
POLICIES_OF_TENSORFLOW = (
    tf.data.experimental.AutoShardPolicy.FILE,
    tf.data.experimental.AutoShardPolicy.OFF,
)


class Source:
    """Batches of one `fit`, `evaluate` or `predict`.

    Attributes:
        num_batches: of one pass; None where nobody knows before, or they never end.
        num_examples: of one pass; None where only batches are counted.
        is_infinite: whether they never end.
        is_endless: whether one pass follows the other in one iterator.
        goes_on: whether an epoch of more steps than a pass has goes on with the next pass.
        is_ours: whether the order is a function of seed and pass.
        begins_again: whether the same data can be gone through again, from any batch, in one
            process as in a new one.
        is_distributed: whether TensorFlow shares the batches out.
        begins_anywhere: whether `shares` begins where it is told to, and not with the first batch.
        may_lack_examples: whether a batch may have fewer examples than there are replicas.
        varies: whether one batch may have another shape than the next.
        changes: whether a pass may have other data than the one before.
        asks_users: whether `found` calls a user's own code, which may draw.
        calls_users: whether `shares` is read by threads that may call a user's own code.
        doubtful: what of `found` may differ between workers by intention.
        components: which parts of a batch were batched together; see pieces.py.
    """

    is_endless = is_distributed = False
    begins_anywhere = True
    is_infinite = is_ours = goes_on = False
    may_lack_examples = varies = True
    begins_again = changes = asks_users = False
    calls_users = True
    doubtful: Collection[str] = ()
    components: Sequence[Component] = TOGETHER
    num_examples: int | None = None

    def __init__(self, num_batches: int | None, replicas: Replicas) -> None:
        self.num_batches, self.replicas = num_batches, replicas

    @property
    def described(self) -> dict[str, str]:
        """What the data are, as far as that can be told without reading them: name -> value."""
        return {}

    def found(self) -> dict[str, str]:
        """Return what else must be the same on all workers, read anew: name -> value.

        Nothing is used up by that which `shares` gives.
        """
        return {}

    @property
    def examples_at(self) -> Callable[[int], int] | None:
        """From a number of steps, over all passes, to the examples that they saw; None: unknown."""
        return None

    @property
    def has_weights(self) -> bool:
        """Whether `shares` gives each local replica's share, with its weight."""
        return self.replicas.total > 1 and not self.is_distributed

    @property
    def is_known(self) -> bool:
        """Whether a call can be told how many batches there will be."""
        return self.num_batches is not None or self.is_endless or self.is_infinite

    def shares(self, pass_number: int, first: int) -> Any:
        """Return a dataset of batches: from batch `first` of a pass to the pass's end.

        With one replica they are what the model gets; with several, a tuple with each local
        replica's share and weight, as `cut` returns them.
        """
        batches = self._batches(pass_number, first)
        if self.replicas.total == 1:
            return batches
        shared = batches.map(
            _as_written(self._cut(batches)), num_parallel_calls=_threads(), deterministic=True
        )
        return shared.prefetch(2)

    def whole_batch(self) -> Any:
        """Return a batch as one device would get it, to explain why a step has failed.

        What is read of a generator is lost, so that nothing can go on after that.
        """
        alone = copy(self)
        alone.replicas = Replicas()
        batches = alone.shares(0, 0)
        alone.begin_pass(0)
        return next(iter(batches))

    def _cut(self, batches: tf.data.Dataset) -> Callable[..., Any]:
        return lambda *batch: cut(_unstarred(batch, batches), self.replicas, self.components)

    def begin_epoch(self) -> None:
        """Note that an epoch begins, which may be a part of a pass, or several."""

    def end_epoch(self) -> None:
        """Note that an epoch has ended."""

    def begin_pass(self, number: int) -> None:
        """Note that what `shares` returned for a pass is going to be read."""

    def end_pass(self) -> None:
        """Note that it has been read."""

    def catch_up(self, passes: int) -> None:
        """Note that an earlier start had so many passes, before other data are read.

        These may share what they are made from.
        """

    def note_ended(self) -> None:
        """Note that a fit on these data had ended at an earlier start; another may share them."""

    def _batches(self, pass_number: int, first: int) -> tf.data.Dataset:
        raise NotImplementedError


def _as_written(ours: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of ours that AutoGraph does not rewrite: that takes time, for nothing."""
    written: Callable[..., Any] = tf.autograph.experimental.do_not_convert(ours)
    return written


def _threads() -> int:
    return tf.config.threading.get_inter_op_parallelism_threads() or available_cpus()


def _unstarred(batch: tuple[Any, ...], dataset: tf.data.Dataset) -> Any:
    """Undo what `Dataset.map` does to elements that are tuples."""
    return batch if isinstance(dataset.element_spec, tuple) else batch[0]


def source_of(
    adapter: Any,
    replicas: Replicas,
    strategy: tf.distribute.Strategy,
    seed: int,
    given: GivenArrays | None = None,
) -> Source:
    """Return the source for what Keras's adapter was made for.

    Args:
        adapter: Keras's, which has checked what was given.
        replicas: who shares the batches.
        strategy: the replicas' strategy.
        seed: of the order, the same on all workers.
        given: arrays that need not be made tensors again.
    """
    if isinstance(adapter, keras_names.ArrayDataAdapter):
        return ArraySource(adapter, replicas, seed, given or GivenArrays())
    if isinstance(adapter, keras_names.PyDatasetAdapter):
        dataset = adapter.py_dataset
        if isinstance(dataset, RowDataset):
            rows = dataset.rows(seed if adapter.shuffle else None)
            source = RowSource(rows, replicas, _weighted_by_class(dataset, adapter.class_weight))
            # The trainer compares its own.
            source.compares = source.asks_users = isinstance(dataset, RandomAccess)
            source.goes_on = True
            return source
        return PyDatasetSource(adapter, replicas, seed)
    if isinstance(adapter, keras_names.TFDatasetAdapter) and _is_for_tensorflow(
        adapter.get_tf_dataset()
    ):
        if ring_of(strategy):
            raise ValueError(
                "The dataset's auto_shard_policy is FILE or OFF, or it was distributed: these are "
                "for TensorFlow's cluster (TRAINER_COLLECTIVES=tensorflow). Without one each "
                "worker reads the whole dataset and takes its share of each batch."
            )
        return DistributedSource(adapter, replicas, strategy)
    return DatasetSource(adapter, replicas)


def may_begin_again(data: Any) -> bool:
    """Tell of what `fit` was given, before it is a source, whether that would begin again.

    A generator may have been read: Keras takes two batches of it to see what they are.
    """
    if isinstance(data, keras.utils.PyDataset):
        return isinstance(data, RowDataset) or _stays_as_it_is(data)
    is_structure_of_arrays: bool = keras_names.can_convert_arrays(data)
    return is_structure_of_arrays or is_random_access(data)


def _stays_as_it_is(dataset: keras.utils.PyDataset) -> bool:
    """Tell whether nothing is done at the end of an epoch, which would have been done already."""
    kind = type(dataset)
    return all(
        getattr(kind, name) is getattr(keras.utils.PyDataset, name)
        for name in ("on_epoch_begin", "on_epoch_end")
    )


def _weighted_by_class(
    dataset: RowDataset, weights: dict[int, float] | None
) -> Callable[[tf.Tensor, tf.Tensor], Any]:
    if weights is None:
        return dataset.take
    add = keras_names.make_class_weight_map_fn(weights)
    return lambda rows, number: add(*dataset.take(rows, number))


def _is_for_tensorflow(dataset: Any) -> bool:
    """Tell whether a user has decided how TensorFlow shares a dataset out."""
    if isinstance(dataset, tf.distribute.DistributedDataset):
        return True
    policy = dataset.options().experimental_distribute.auto_shard_policy
    return policy in POLICIES_OF_TENSORFLOW


class RowSource(Source):
    """Examples that are picked out by their rows: each replica's own, and nobody else's.

    Attributes:
        compares: whether some examples are read to tell whether all workers have the same.
    """

    compares = False
    is_endless = is_ours = begins_again = True

    def __init__(
        self, rows: EpochOrder, replicas: Replicas, pick: Callable[[tf.Tensor, tf.Tensor], Any]
    ) -> None:
        super().__init__(-(-rows.examples // rows.batch_size), replicas)
        self.calls_users = rows.take_work
        self._rows, self._pick, self.num_examples = rows, pick, rows.examples
        short = rows.examples % rows.batch_size
        self.varies = bool(short)
        self.may_lack_examples = replicas.may_exceed(short or rows.batch_size)

    def found(self) -> dict[str, str]:
        """Return digests of a few examples; see Source.found."""
        if not self.compares:
            return {}
        rows = np.unique(np.linspace(0, self._rows.examples - 1, READ, dtype=np.int64))
        return of_batch(self._pick(tf.constant(rows), tf.constant(0, tf.int64)))

    @property
    def examples_at(self) -> Callable[[int], int]:
        """From a number of steps to the examples that they saw; see Source.examples_at."""
        rows = self._rows
        return partial(examples_at, examples=rows.examples, batch_size=rows.batch_size)

    def shares(self, pass_number: int, first: int) -> tf.data.Dataset:
        """Return one pass after the other; see Source.shares."""
        assert self.num_batches  # noqa: S101  there are no data of no examples
        begin = pass_number * self.num_batches + first
        steps = tf.data.Dataset.range(begin, MANY_BATCHES)
        options = tf.data.Options()
        options.autotune.enabled = False
        # Rewriting the pipeline copies the arrays that it reads from (measured).
        options.experimental_optimization.apply_default_optimizations = False
        share = self._alone if self.replicas.total == 1 else self._shared
        if self._rows.take_work:  # which may call what is not ours, as to decode pictures
            batches = steps.map(share, num_parallel_calls=_threads(), deterministic=True)
        else:  # one thread copies batches faster than any model takes them
            batches = steps.map(_as_written(share))
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
        """Return where a step's batch begins in its pass, its examples, and the pass."""
        rows = self._rows
        begin = step % self.num_batches * rows.batch_size
        examples = tf.constant(rows.batch_size, tf.int64)
        if rows.examples % rows.batch_size:
            examples = tf.minimum(rows.examples - begin, examples)
        return begin, examples, step // self.num_batches

    def _take(self, start: tf.Tensor, stop: tf.Tensor, size: int | None, number: tf.Tensor) -> Any:
        """Return the examples at some positions of a pass.

        Args:
            start: the first position.
            stop: the position after the last.
            size: how many there are, but in a last batch that is short; None: it varies.
            number: of the pass.
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
    """Arrays."""

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
        # Within a batch the order makes no difference that could be meant.
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
    """Return a leaf of what Keras was given as it can be picked from, with Keras's own casts."""
    converted = keras_names.convert_to_sliceable(leaf, target_backend="tensorflow")
    return keras.tree.map_structure(_as_tensor, converted)


def _as_tensor(value: Any) -> Any:
    """Return an array as a tensor, which shares its memory if that is possible."""
    if not isinstance(value, np.ndarray):
        return value
    return arrays.as_tensor(value) if value.dtype.kind in "biuf" else tf.convert_to_tensor(value)


class PyDatasetSource(Source):
    """A PyDataset, in an order of ours where it is to be shuffled."""

    is_ours = asks_users = True

    def __init__(
        self, adapter: keras_names.PyDatasetAdapter, replicas: Replicas, seed: int
    ) -> None:
        self._reading: keras_names.PyDatasetAdapter | None = None
        super().__init__(adapter.num_batches, replicas)
        self._adapter, self._seed = adapter, seed
        self.is_infinite = adapter.num_batches is None
        self.begins_again = _stays_as_it_is(adapter.py_dataset)
        self.changes = not self.begins_again
        self._signature: Any = None

    def found(self) -> dict[str, str]:
        """Return digests of the first batch; see Source.found."""
        self.end_pass()  # which may have been left while threads read ahead, and draw
        return {} if self.num_batches == 0 else of_batch(self._adapter.py_dataset[0])

    def begin_epoch(self) -> None:
        """Tell the dataset that an epoch begins."""
        self._adapter.py_dataset.on_epoch_begin()

    def end_epoch(self) -> None:
        """Tell the dataset that an epoch has ended."""
        self._adapter.py_dataset.on_epoch_end()

    def begin_pass(self, number: int) -> None:  # noqa: ARG002  `shares` was told
        """Begin to read ahead."""
        if self._reading and self._reading.enqueuer:
            self._reading.enqueuer.start()

    def end_pass(self) -> None:
        """Stop reading ahead."""
        if self._reading and self._reading.enqueuer:
            self._reading.enqueuer.stop()
        self._reading = None

    def __del__(self) -> None:
        """Stop reading ahead; a pass may be left in its middle."""
        self.end_pass()

    def _batches(self, pass_number: int, first: int) -> tf.data.Dataset:
        self.end_pass()
        ordered = _InOrder(self._adapter.py_dataset, self._order(pass_number), first)
        reading = keras_names.PyDatasetAdapter(ordered, class_weight=self._adapter.class_weight)
        keras_names.set_signature(reading, self._signature)  # else it reads two batches more
        dataset = reading.get_tf_dataset()
        self._signature = keras_names.signature_of(reading)
        self._reading = reading
        return dataset

    def _order(self, pass_number: int) -> np.ndarray | None:
        if not (self._adapter.shuffle and self.num_batches):
            return None
        return np.random.default_rng([self._seed, pass_number]).permutation(self.num_batches)


class _InOrder(keras.utils.PyDataset):
    """A PyDataset from one of its batches on, in another order."""

    def __init__(self, inner: keras.utils.PyDataset, order: np.ndarray | None, first: int) -> None:
        super().__init__(
            workers=inner.workers,
            use_multiprocessing=inner.use_multiprocessing,
            max_queue_size=inner.max_queue_size,
        )
        self._inner, self._order, self._first = inner, order, first

    @property
    def num_batches(self) -> int | None:
        """How many batches are left."""
        known = self._inner.num_batches
        return None if known is None else known - self._first

    def __getitem__(self, index: int) -> Any:
        """Return the batch that is the next but `index`."""
        place = self._first + index
        return self._inner[place if self._order is None else int(self._order[place])]


class DatasetSource(Source):
    """Anything that Keras turns into a tf.data.Dataset: each worker reads it all."""

    doubtful = (pipelines.DRAWS,)  # a pipeline may augment its examples with what it draws

    def __init__(self, adapter: Any, replicas: Replicas) -> None:
        super().__init__(adapter.num_batches, replicas)
        self._adapter, self._begun = adapter, 0
        self._dataset = adapter.get_tf_dataset()
        for warning in pipelines.warnings(self._dataset) if replicas.workers > 1 else ():
            log.warning(warning)
        self.is_infinite = int(self._dataset.cardinality()) == tf.data.INFINITE_CARDINALITY
        shapes = pipelines.shapes(self._dataset)
        if isinstance(adapter, keras_names.TFDatasetAdapter):
            self.components = pipelines.components(self._dataset)
        self.varies = not all(shape.is_fully_defined() for shape in shapes)
        self.may_lack_examples = replicas.may_exceed(fewest_pieces(shapes, self.components))

    def found(self) -> dict[str, str]:
        """Return how the pipeline was made, or what a generator has given first."""
        # Keras has read some batches to see what they are.
        first = keras_names.first_batches(self._adapter)
        return pipelines.facts(self._dataset) if first is None else of_batch(first)

    def begin_pass(self, number: int) -> None:
        """Begin as many passes as an earlier start of the program had."""
        self.catch_up(number)
        self._begun = number + 1

    def catch_up(self, passes: int) -> None:
        """Begin those that have not been begun in this process; see Source.catch_up.

        A `Dataset.shuffle` draws another order for each iterator: so the next one has the order
        that it would have had.
        """
        if isinstance(self._adapter, keras_names.TFDatasetAdapter):
            pipelines.warn_of_ended(self._dataset)
            pipelines.begin(self._dataset, passes - self._begun)
        self._begun = max(self._begun, passes)

    def note_ended(self) -> None:
        """Note whose shuffles nobody begins in this process; see Source.note_ended."""
        if isinstance(self._adapter, keras_names.TFDatasetAdapter):
            pipelines.note_ended(self._dataset)

    def begin_epoch(self) -> None:
        """Tell Keras's adapter that an epoch begins."""
        self._adapter.on_epoch_begin()

    def end_epoch(self) -> None:
        """Tell Keras's adapter that an epoch has ended."""
        self._adapter.on_epoch_end()

    def _batches(self, pass_number: int, first: int) -> tf.data.Dataset:  # noqa: ARG002  its order is its own
        return self._dataset.skip(first) if first else self._dataset


def batch_size_of(adapter: Any) -> int | None:
    """Return the size of batches; None: it is not known.

    Keras asks the first part of a tf.data.Dataset's batches, which may be a number for all of one.
    """
    if not isinstance(adapter, keras_names.TFDatasetAdapter):
        size: int | None = adapter.batch_size
        return size
    shapes = [shape for shape in pipelines.shapes(adapter.get_tf_dataset()) if shape.rank != 0]
    return shapes[0][0] if shapes and shapes[0].rank else None


class DistributedSource(Source):
    """What a user has asked TensorFlow to share out, by files for example."""

    is_distributed = True
    begins_anywhere = False

    def __init__(
        self,
        adapter: keras_names.TFDatasetAdapter,
        replicas: Replicas,
        strategy: tf.distribute.Strategy,
    ) -> None:
        super().__init__(adapter.num_batches, replicas)
        dataset = adapter.get_tf_dataset()
        if replicas.total > 1 and not isinstance(dataset, tf.distribute.DistributedDataset):
            dataset = strategy.experimental_distribute_dataset(dataset)
        self._dataset = dataset
        self.is_distributed = replicas.total > 1

    def shares(self, pass_number: int, first: int) -> Any:  # noqa: ARG002  the order is TensorFlow's
        """Return the distributed dataset."""
        return self._dataset
