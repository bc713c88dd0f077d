"""Memory that is used again once nobody refers to it: fresh pages cost more than adding does."""

import sys

import numpy as np

ALIGNMENT = 64
"""Bytes. TensorFlow takes an array as its own tensor, without a copy, where it begins at such a
place: EIGEN_MAX_ALIGN_BYTES on x86-64 with AVX-512, more than any other build needs."""
MOST_HELD = 16
"""Enough for the sums of eight buckets, which are under way at once, and what is sent for one."""


class Memory:
    """Arrays of any size and type.

    What is given out belongs to the receiver for as long as it, or anything made of it (a view, a
    tensor), lives; only then is its memory given out again.
    """

    def __init__(self) -> None:
        self._held: list[np.ndarray] = [np.empty(0, np.uint8)]
        self._idle = sys.getrefcount(self._held[0])

    def take(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Return an array, dtype [count], with any values."""
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
    """Return so many fresh bytes that TensorFlow takes without a copy."""
    return _aligned(np.empty(size + ALIGNMENT, np.uint8), size)


def _aligned(held: np.ndarray, size: int) -> np.ndarray:
    first = -held.ctypes.data % ALIGNMENT
    return held[first : first + size]
