"""Returns a model's weights as arrays, and their digest, by which models are compared."""

import hashlib
from collections.abc import Iterable

import keras
import numpy as np


def values_of(model: keras.Model) -> list[np.ndarray]:
    """Return the weights in the model's own order, from this process's first replica."""
    return [np.asarray(variable.value) for variable in model.weights]


def digest(values: Iterable[np.ndarray]) -> str:
    """Return the SHA-256 of the weights, in hexadecimal.

    For each array it covers the dtype, the shape as "d0,d1", and the bytes in C order. So equal
    digests mean equal weights, bit for bit, in the same order.
    """
    whole = hashlib.sha256()
    for value in values:
        shape = ",".join(str(size) for size in value.shape)
        whole.update(f"{value.dtype.name} {shape}\n".encode())
        whole.update(np.ascontiguousarray(value).tobytes())
    return whole.hexdigest()
