"""Takes a model's and an optimizer's values, and restores them."""

from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import tensorflow as tf


class State:
    """Every variable of a run's state: weights, statistics, seeds, the optimizer's own.

    Create it after the optimizer's variables exist.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        self._variables = variables

    @property
    def names(self) -> list[str]:
        """The variables by name, dtype and shape: `mnist_cnn/conv2d/kernel float32[3,3,1,32]`."""
        return [_described(variable) for variable in self._variables]

    def take(self) -> list[np.ndarray]:
        """Return copies of the values on this process's first replica."""
        return [np.asarray(on_first_replica(variable)).copy() for variable in self._variables]

    def put_back(self, arrays: Sequence[np.ndarray], gone: Container[int] = ()) -> None:
        """Restore on all replicas of this process the values that `take` returned.

        Args:
            arrays: the values.
            gone: the places of those that are not there. Such a variable gets NaN, so that nobody
                takes what it happens to have for what it should have.
        """
        for index, (variable, array) in enumerate(zip(self._variables, arrays, strict=True)):
            if index not in gone:
                variable.assign(_typed(array, variable.dtype))
            elif tf.as_dtype(variable.dtype).is_floating:
                variable.assign(tf.fill(variable.shape, tf.constant(np.nan, variable.dtype)))


def on_first_replica(variable: Any) -> Any:
    """Return a replica's value; in a strategy's scope NumPy cannot read a variable as a whole.

    Read by the operation itself: NumPy gets a copy from a variable, which is to be copied anyway.
    """
    value = variable.value
    if isinstance(value, tf.distribute.DistributedValues):
        value = value.values[0]
    if not isinstance(value, tf.Variable):
        return value
    return tf.raw_ops.ReadVariableOp(resource=value.handle, dtype=value.dtype)


def _described(variable: Any) -> str:
    shape = ",".join(str(size) for size in variable.shape)
    return f"{variable.path} {variable.dtype}[{shape}]"


def _typed(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return the array in its own dtype: NumPy's files store bfloat16 as two bytes."""
    return array.view(tf.as_dtype(dtype).as_numpy_dtype) if array.dtype.kind == "V" else array
