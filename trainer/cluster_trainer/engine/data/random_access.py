"""Lets `fit` take sources of known length that return single examples by index.

PyTorch calls such a source a map-style data set, and Grain calls it a random-access source. Keras
accepts neither. Here `fit(x=source, batch_size=64)` works, with the same order and exactness as
arrays.
"""

import inspect
import threading
from collections.abc import Callable, MutableMapping
from functools import wraps
from typing import Any
from weakref import WeakValueDictionary

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.engine.data.row_dataset import RowDataset
from cluster_trainer.private import keras_names

BATCH_SIZE = 32  # Keras's own
KNOWN = (str, bytes, list, tuple, dict, tf.data.Dataset, keras.utils.PyDataset)

# A lock for each source, because a reader may begin before the previous one has ended.
_locks: MutableMapping[int, threading.Lock] = WeakValueDictionary()


class RandomAccess(RowDataset):
    """The examples of a source in batches.

    The source has `len(source)` examples. `source[i]` is example i: arrays and numbers in any
    structure, such as (input, target). All examples must have the same structure, shapes and types.

    Raises:
        ValueError: the source is empty.
    """

    take_work = True

    def __init__(self, source: Any, batch_size: int) -> None:
        if not len(source):
            raise ValueError(f"{type(source).__name__}: there are no examples to train on")
        super().__init__(len(source), batch_size)
        self._source, self._lock = source, _locks.setdefault(id(source), threading.Lock())
        self._structure = keras.tree.lists_to_tuples(source[0])
        leaves = [np.asarray(leaf) for leaf in keras.tree.flatten(self._structure)]
        self._dtypes = [_dtype_of(leaf) for leaf in leaves]
        self._shapes = [leaf.shape for leaf in leaves]
        self.bytes_of_example = float(sum(leaf.nbytes for leaf in leaves))

    def take(self, rows: tf.Tensor, pass_number: tf.Tensor) -> Any:  # noqa: ARG002
        """Return the examples at `rows`, int64 [n], with each part stacked to [n, …]."""
        # Eager TensorFlow returns a tensor in place of a list of one.
        parts = tf.nest.flatten(tf.numpy_function(self._read, [rows], self._dtypes))
        for part, shape in zip(parts, self._shapes, strict=True):
            part.set_shape([None, *shape])
        return keras.tree.pack_sequence_as(self._structure, parts)

    def _read(self, rows: np.ndarray) -> list[np.ndarray]:
        with self._lock:  # a source may read a file, which only one thread at a time may do
            examples = [keras.tree.flatten(self._source[int(row)]) for row in rows]
        parts = zip(*examples, strict=True)
        return [self._typed(part, place, rows) for place, part in enumerate(parts)]

    def _typed(self, part: Any, place: int, rows: np.ndarray) -> np.ndarray:
        """Return a part of some examples as an array, in the type of the first example.

        Raises:
            TypeError: the numbers cannot be cast to that type within the same kind.
        """
        dtype, values = self._dtypes[place].as_numpy_dtype, np.asarray(part)
        is_number = values.dtype.kind in "biuf"
        if is_number and not np.can_cast(values.dtype, dtype, "same_kind"):
            raise TypeError(
                f"{type(self._source).__name__}: examples {rows.min()} to {rows.max()} have "
                f"{values.dtype} where the first one has {np.dtype(dtype)}; all need one type"
            )
        return values.astype(dtype) if is_number else np.asarray(part, dtype)


def _dtype_of(leaf: np.ndarray) -> tf.DType:
    """Return the type of a part; float64 becomes float32, the default type of Keras's layers."""
    return tf.float32 if leaf.dtype == np.float64 else tf.as_dtype(leaf.dtype)


def is_random_access(data: Any) -> bool:
    """Tell whether data have `__len__` and `__getitem__`, and Keras does not accept them."""
    if isinstance(data, KNOWN) or keras_names.can_slice_array(data):
        return False
    if keras_names.is_torch_dataloader(data) or keras_names.is_grain_dataset(data):
        return False
    return all(hasattr(type(data), name) for name in ("__len__", "__getitem__"))


def accepting(keras_own: Callable[..., Any]) -> Callable[..., Any]:
    """Return Keras's `get_data_adapter`, extended by random-access sources."""
    signature = inspect.signature(keras_own)

    @wraps(keras_own)
    def get_data_adapter(*arguments: Any, **keywords: Any) -> Any:
        given = signature.bind(*arguments, **keywords)
        source = given.arguments["x"]
        if is_random_access(source):
            size = given.arguments.get("batch_size") or BATCH_SIZE
            given.arguments["x"] = RandomAccess(source, size)
        return keras_own(*given.args, **given.kwargs)

    return get_data_adapter
