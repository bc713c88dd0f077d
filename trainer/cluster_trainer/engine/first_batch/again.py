"""A batch that was taken from an iterator, given once more."""

from typing import Any

import tensorflow as tf

from cluster_trainer.private import tensorflow_names


def iterator_of(batch: Any, spec: Any) -> Any:
    """Return an iterator that gives a batch once, and that no trace tells from where it came from.

    Args:
        batch: a single one.
        spec: of the iterator from which it was taken, which may know less of its shapes.
    """
    one = tf.raw_ops.TensorDataset(
        components=tensorflow_names.to_tensor_list(spec, batch),
        output_shapes=tensorflow_names.get_flat_tensor_shapes(spec),
    )
    return iter(tensorflow_names.single(one, spec))
