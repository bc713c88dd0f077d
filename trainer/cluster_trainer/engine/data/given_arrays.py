"""The training arrays of a fit: each becomes a tensor once, even if the fit begins again."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np


class GivenArrays:
    """Arrays, and the tensors that were made from them.

    A fit that resumes after a loss, or was rehearsed, begins again. Most arrays are copied to
    become tensors, which takes as long as reading all of their memory. A copy from before any
    callback could change the array is also what a worker in a new process starts with. An array
    that shares its memory with its tensor shows each change, as usual. Other data stay as they are.
    """

    def __init__(self, *data: Any) -> None:
        # By `id`, which is unique while they are held here.
        leaves = keras.tree.flatten(data)
        self._arrays = {id(leaf): leaf for leaf in leaves if isinstance(leaf, np.ndarray)}
        self._tensors: dict[int, Any] = {}

    def tensor(self, leaf: Any, make: Callable[[Any], Any]) -> Any:
        """Return the result of `make` for a leaf, or its earlier result for one of these arrays."""
        if id(leaf) not in self._arrays:
            return make(leaf)
        if id(leaf) not in self._tensors:
            self._tensors[id(leaf)] = make(leaf)
        return self._tensors[id(leaf)]

    def let_go(self) -> None:
        """Release all of them: the fit is over."""
        self._arrays.clear()
        self._tensors.clear()
