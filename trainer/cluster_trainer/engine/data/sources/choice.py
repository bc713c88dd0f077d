"""Chooses the source that reads the data of Keras's `fit`."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas, ring_of
from cluster_trainer.engine.data import pipelines
from cluster_trainer.engine.data.given_arrays import GivenArrays
from cluster_trainer.engine.data.random_access import RandomAccess, is_random_access
from cluster_trainer.engine.data.row_dataset import RowDataset
from cluster_trainer.engine.data.sources.dataset import DatasetSource, DistributedSource
from cluster_trainer.engine.data.sources.py_dataset import PyDatasetSource, stays_as_it_is
from cluster_trainer.engine.data.sources.rows import ArraySource, RowSource
from cluster_trainer.engine.data.sources.source import Source
from cluster_trainer.private import keras_names

POLICIES_OF_TENSORFLOW = (
    tf.data.experimental.AutoShardPolicy.FILE,
    tf.data.experimental.AutoShardPolicy.OFF,
)


def source_of(
    adapter: Any,
    replicas: Replicas,
    strategy: tf.distribute.Strategy,
    seed: int,
    given: GivenArrays | None = None,
) -> Source:
    """Return the source for data that Keras's adapter has checked.

    Args:
        adapter: Keras's adapter of the data.
        replicas: the replicas that share each batch.
        strategy: the model's strategy.
        seed: the seed of the order, the same on all workers.
        given: arrays of a fit that may begin again; see given_arrays.py.

    Raises:
        ValueError: the arrays are empty, or TensorFlow is to divide a dataset over a ring.
    """
    if isinstance(adapter, keras_names.ArrayDataAdapter):
        return ArraySource(adapter, replicas, seed, given or GivenArrays())
    if isinstance(adapter, keras_names.PyDatasetAdapter):
        dataset = adapter.py_dataset
        if isinstance(dataset, RowDataset):
            rows = dataset.rows(seed if adapter.shuffle else None)
            source = RowSource(rows, replicas, _weighted_by_class(dataset, adapter.class_weight))
            # The trainer compares its own data itself.
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
    """Tell whether the data of a `fit` can be read again, before there is a source for them.

    A generator's data cannot, because Keras has already taken two batches to inspect them.
    """
    if isinstance(data, keras.utils.PyDataset):
        return isinstance(data, RowDataset) or stays_as_it_is(data)
    is_structure_of_arrays: bool = keras_names.can_convert_arrays(data)
    return is_structure_of_arrays or is_random_access(data)


def _weighted_by_class(
    dataset: RowDataset, weights: dict[int, float] | None
) -> Callable[[tf.Tensor, tf.Tensor], Any]:
    if weights is None:
        return dataset.take
    add = keras_names.make_class_weight_map_fn(weights)
    return lambda rows, number: add(*dataset.take(rows, number))


def _is_for_tensorflow(dataset: Any) -> bool:
    """Tell whether a user lets TensorFlow divide a dataset."""
    if isinstance(dataset, tf.distribute.DistributedDataset):
        return True
    policy = dataset.options().experimental_distribute.auto_shard_policy
    return policy in POLICIES_OF_TENSORFLOW


def batch_size_of(adapter: Any) -> int | None:
    """Return the size of batches; None: unknown.

    Keras's own answer for a tf.data.Dataset is not used: it inspects only the first part of a
    batch, which may be a number for the whole batch.
    """
    if not isinstance(adapter, keras_names.TFDatasetAdapter):
        size: int | None = adapter.batch_size
        return size
    shapes = [shape for shape in pipelines.shapes(adapter.get_tf_dataset()) if shape.rank != 0]
    return shapes[0][0] if shapes and shapes[0].rank else None
