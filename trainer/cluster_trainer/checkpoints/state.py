"""Takes the values of a model's and an optimizer's variables, and restores them."""

from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import tensorflow as tf


class State:
    """The variables of a run's state: weights, statistics, seeds, and the optimizer's own.

    Create it after the optimizer's variables exist.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        self._variables = variables

    @property
    def names(self) -> list[str]:
        """Each variable's path, dtype and shape: `mnist_cnn/conv2d/kernel float32[3,3,1,32]`."""
        return [_described(variable) for variable in self._variables]

    def take(self) -> list[np.ndarray]:
        """Return copies of the values on this process's first replica."""
        return [np.asarray(on_first_replica(variable)).copy() for variable in self._variables]

    def put_back(self, arrays: Sequence[np.ndarray], gone: Container[int] = ()) -> None:
        """Restore the values that `take` has returned, on all replicas of this process.

        Args:
            arrays: the values, in the order of the variables.
            gone: the positions of values that were removed. Such a variable is filled with NaN if
                it is floating-point, so that its present value is not mistaken for the right one.
        """
        for index, (variable, array) in enumerate(zip(self._variables, arrays, strict=True)):
            if index not in gone:
                variable.assign(_typed(array, variable.dtype))
            elif tf.as_dtype(variable.dtype).is_floating:
                variable.assign(tf.fill(variable.shape, tf.constant(np.nan, variable.dtype)))


def on_first_replica(variable: Any) -> Any:
    """Return the value of a variable on this process's first replica.

    In a strategy's scope, NumPy cannot read a variable as a whole. TensorFlow's operation reads the
    value without a copy; NumPy would get a copy from a variable.
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
    """Return an array in the variable's dtype: NumPy's files store bfloat16 as two plain bytes."""
    return array.view(tf.as_dtype(dtype).as_numpy_dtype) if array.dtype.kind == "V" else array
