"""Makes a tensor of each training array of a fit once, even if the fit begins again."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np


class GivenArrays:
    """Arrays, and the tensors that were made from them.

    A fit begins again when it resumes after a lost worker, or was rehearsed. Arrays are copied to
    become tensors, which takes as long as reading all of their memory. So each copy is made once,
    before a callback can change the array, because a worker in a new process also starts with the
    original values. A mapped file that shares its memory with its tensor is not copied, so the
    tensor shows each change.
    """

    def __init__(self, *data: Any) -> None:
        # By `id`, which is unique while they are held here.
        leaves = keras.tree.flatten(data)
        self._arrays = {id(leaf): leaf for leaf in leaves if isinstance(leaf, np.ndarray)}
        self._tensors: dict[int, Any] = {}

    def tensor(self, leaf: Any, make: Callable[[Any], Any]) -> Any:
        """Return `make(leaf)`; for one of these arrays, the result of the first call."""
        if id(leaf) not in self._arrays:
            return make(leaf)
        if id(leaf) not in self._tensors:
            self._tensors[id(leaf)] = make(leaf)
        return self._tensors[id(leaf)]

    def let_go(self) -> None:
        """Release all arrays and tensors when the fit is over."""
        self._arrays.clear()
        self._tensors.clear()
