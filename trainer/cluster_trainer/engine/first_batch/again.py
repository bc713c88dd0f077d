"""A batch that was taken from an iterator, given once more."""

from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.data.util import structure


def iterator_of(batch: Any, spec: Any) -> Any:
    """Return an iterator that gives a batch once, and that no trace tells from where it came from.

    Args:
        batch: a single one.
        spec: of the iterator from which it was taken, which may know less of its shapes.
    """
    one = tf.raw_ops.TensorDataset(
        components=structure.to_tensor_list(spec, batch),
        output_shapes=structure.get_flat_tensor_shapes(spec),
    )
    return iter(dataset_ops._VariantDataset(one, spec))  # noqa: SLF001
