"""Computes how much more a worker sends for an average of weights than for a sum of gradients."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.engine.replicas import statistics
from cluster_trainer.private import keras_names


def ratio_of(model: keras.Model) -> float:
    """Return the size of weights, slots and statistics, divided by that of gradients; at least 1.

    Sparse gradients, which are smaller than their weights, count as dense.

    Args:
        model: a compiled model whose variables all exist.
    """
    gradients = _size(model.trainable_variables)
    optimizers = keras_names.optimizers_of(model)
    slots = [variable for one in optimizers for variable in one.variables]
    averaged = gradients + _size(slots) + _size(statistics.of_replica(model))
    return max(1.0, averaged / max(gradients, 1))


def _size(variables: list[Any]) -> int:
    floats = [one for one in variables if tf.as_dtype(one.dtype).is_floating]
    return sum(int(np.prod(one.shape)) for one in floats)
