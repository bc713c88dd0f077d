"""The arrays that a fit is given to train on: each is made a tensor once, whenever it begins."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np


class GivenArrays:
    """Arrays, and the tensors that they were first made.

    A fit that goes on after a loss, or was rehearsed, begins anew. Most arrays are copied to become
    tensors, which takes as long as reading all of the memory. And a copy that was made before any
    callback could change the array is what a worker in a new process begins with. One that shares
    its memory with its tensor shows each change, as ever. What is no array is left as it is.
    """

    def __init__(self, *data: Any) -> None:
        # By `id`, which is nobody else's as long as they are held here.
        leaves = keras.tree.flatten(data)
        self._arrays = {id(leaf): leaf for leaf in leaves if isinstance(leaf, np.ndarray)}
        self._tensors: dict[int, Any] = {}

    def tensor(self, leaf: Any, make: Callable[[Any], Any]) -> Any:
        """Return what `make` makes of a leaf, or has made of it, if it is one of these."""
        if id(leaf) not in self._arrays:
            return make(leaf)
        if id(leaf) not in self._tensors:
            self._tensors[id(leaf)] = make(leaf)
        return self._tensors[id(leaf)]

    def let_go(self) -> None:
        """Hold none of them any longer: the fit is over."""
        self._arrays.clear()
        self._tensors.clear()
