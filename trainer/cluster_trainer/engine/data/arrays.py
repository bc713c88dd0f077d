"""Gives TensorFlow arrays in memory or in a mapped file, without a copy.

`tf.constant` copies an array, and copies it twice if it does not begin on a 64-byte boundary
(measured with TensorFlow 2.21). DLPack shares the memory, but does not check it: TensorFlow aborts
the process if an array is not aligned.
"""

import math
from mmap import mmap
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from cluster_trainer.collectives.ring.memory import ALIGNMENT, aligned


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    """Return a new, uninitialized array that `as_tensor` need not copy."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return aligned(size).view(dtype).reshape(shape)


def as_tensor(array: np.ndarray) -> tf.Tensor:
    """Return a tensor in host memory that shares the array's memory if possible.

    An array that is read-only, not contiguous, not aligned or not in native byte order is copied.
    Do not write to the array or the tensor afterwards.
    """
    shareable = array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative
    if not shareable or array.ctypes.data % ALIGNMENT:
        return copied(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def copied(array: np.ndarray) -> tf.Tensor:
    """Return a tensor in host memory with a copy of an array, which is made once."""
    copy = empty(array.shape, array.dtype.newbyteorder("="))
    copy[...] = array
    return tf.experimental.dlpack.from_dlpack(copy.__dlpack__())


def is_mapped(array: np.ndarray) -> bool:
    """Tell whether an array is in a mapped file, which may be larger than the memory."""
    below: Any = array
    while isinstance(below, np.ndarray):
        below = below.base
    return isinstance(below, mmap)
