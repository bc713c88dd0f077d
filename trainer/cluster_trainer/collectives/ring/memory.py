"""Reuses memory to which nothing refers any more: fresh pages cost more than the additions."""

import sys

import numpy as np

ALIGNMENT = 64
"""Bytes. TensorFlow uses an array without a copy if it begins at a multiple of this:
EIGEN_MAX_ALIGN_BYTES on x86-64 with AVX-512, the largest of all builds."""
MOST_HELD = 16
"""The maximum number of arrays: enough for the sums of eight buckets, and for what a sum sends."""


class Memory:
    """A pool of arrays of any size and type.

    An array belongs to the caller as long as there is a reference to it, or to anything that shares
    its memory, such as a view or a tensor. Afterwards its memory is used again.
    """

    def __init__(self) -> None:
        self._held: list[np.ndarray] = [np.empty(0, np.uint8)]
        self._idle = sys.getrefcount(self._held[0])

    def take(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Return an array, dtype [count], with undefined values."""
        size = count * dtype.itemsize
        for place in range(len(self._held)):
            idle = sys.getrefcount(self._held[place]) == self._idle
            if idle and size + ALIGNMENT <= self._held[place].size <= 2 * size + 4096:
                return _aligned(self._held[place], size).view(dtype)
        return self._fresh(size).view(dtype)

    def _fresh(self, size: int) -> np.ndarray:
        held = np.empty(size + ALIGNMENT, np.uint8)
        self._held = [*self._held[-MOST_HELD + 1 :], held]
        return _aligned(held, size)


def aligned(size: int) -> np.ndarray:
    """Return an uninitialized array, uint8 [size], aligned for TensorFlow."""
    return _aligned(np.empty(size + ALIGNMENT, np.uint8), size)


def _aligned(held: np.ndarray, size: int) -> np.ndarray:
    first = -held.ctypes.data % ALIGNMENT
    return held[first : first + size]
