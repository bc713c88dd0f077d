"""Tells whether a `map` of batches makes each row from the same row of the batch.

Such a function can be called with some of the rows. It may contain only a few operations, which
scale numbers, encode labels and resize pictures. They give the same bits for a row at any position.
`exp` does not: at the end of an array it is computed in another way.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from cluster_trainer.engine.data.sharding.stateless import CALLS, is_stateless

BY_ELEMENT = {
    *("Abs", "Cast", "Ceil", "Floor", "Identity", "LogicalNot", "Neg", "Rint", "Round", "Sqrt"),
    *("Square", "StopGradient"),
    *("AddV2", "BiasAdd", "ClipByValue", "Equal", "FloorDiv", "Greater", "GreaterEqual", "Less"),
    *("LessEqual", "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul", "NotEqual", "RealDiv"),
    *("SelectV2", "Sub"),
}
"""Elementwise operations, whose inputs are broadcast."""
OVER_AXES = {"Max", "Min", "ReverseV2"}
"""Operations over the axes in their second input."""
OF_PICTURES = {"ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor"}
IN_ORDER = {*CALLS, "Assert"}
"""Operations that run even if their results are unused."""


def is_row_wise(function: Any) -> bool:
    """Tell whether a function of batches can be called with some of the rows."""
    operations = function.graph.get_operations()
    if not is_stateless(function) or any(one.type in IN_ORDER for one in operations):
        return False
    captured = {one.name for one in function.graph.internal_captures}
    given = [one for one in function.inputs if one.name not in captured]
    if not all(one.shape.rank and one.shape[0] is None for one in given):
        return False
    rows = _Rows({one.name for one in given}, captured)
    return all(map(rows.has, function.outputs))


class _Rows:
    """Tells which tensors of a function have a row for each row of the batch, and which are fixed.

    Args:
        given: the names of the tensors that are parts of the batch.
        captured: the names of the tensors that the function captures from outside.
    """

    def __init__(self, given: set[str], captured: set[str]) -> None:
        self._have_rows = dict.fromkeys(given, True)
        self._are_fixed = {**dict.fromkeys(given, False), **dict.fromkeys(captured, True)}

    def has(self, tensor: Any) -> bool:
        """Tell whether each row of a tensor is made from the same row of the batch."""
        if tensor.name not in self._have_rows:
            self._have_rows[tensor.name] = self._made_by_row(tensor)
        return self._have_rows[tensor.name]

    def _is_fixed(self, tensor: Any) -> bool:
        """Tell whether a tensor is the same for all batches."""
        if tensor.name not in self._are_fixed:
            self._are_fixed[tensor.name] = all(map(self._is_fixed, tensor.op.inputs))
        return self._are_fixed[tensor.name]

    def _made_by_row(self, tensor: Any) -> bool:
        operation, rank = tensor.op, tensor.shape.rank
        if operation.type in BY_ELEMENT:
            return bool(rank) and self._is_broadcast(operation.inputs, rank)
        if operation.type == "GatherV2":
            return self._is_looked_up(operation)
        if operation.type in ("ConcatV2", "Pack"):
            return self._is_joined(operation)
        keeps = KEEPS_ROWS.get(operation.type)
        if keeps is None or not self.has(operation.inputs[0]):
            return False
        return all(map(self._is_fixed, operation.inputs[1:])) and keeps(operation)

    def _is_broadcast(self, inputs: Any, rank: int) -> bool:
        """Tell whether each row is made from one row of the batch, and from parts for all rows."""
        return any(map(self.has, inputs)) and all(
            one.shape.rank == rank if self.has(one) else self._is_for_all(one, rank)
            for one in inputs
        )

    def _is_for_all(self, tensor: Any, rank: int) -> bool:
        if not self._is_fixed(tensor) or tensor.shape.rank is None:
            return False
        return bool(tensor.shape.rank < rank or tensor.shape[0] == 1)

    def _is_joined(self, operation: Any) -> bool:
        """Tell whether parts with rows are joined along another axis."""
        if operation.type == "Pack":
            parts, axis = operation.inputs, operation.get_attr("axis")
        else:
            *parts, last = operation.inputs
            axis = tf.get_static_value(last)
        return all(map(self.has, parts)) and _has_other_axes(axis, operation.outputs[0].shape.rank)

    def _is_looked_up(self, operation: Any) -> bool:
        """Tell whether rows of numbers choose rows of a fixed table."""
        table, numbers, axis = operation.inputs
        is_plain = tf.get_static_value(axis) == 0 and operation.get_attr("batch_dims") == 0
        return bool(is_plain) and self._is_fixed(table) and self.has(numbers)


def _has_other_axes(axes: Any, rank: int | None) -> bool:
    """Tell whether the axes are known, and do not include the rows' axis, 0."""
    if axes is None or rank is None:
        return False
    return all(int(axis) % rank for axis in np.ravel(axes))


def _reduces_other_axes(operation: Any) -> bool:
    rows, axes = operation.inputs
    return _has_other_axes(tf.get_static_value(axes), rows.shape.rank)


def _adds_other_axis(operation: Any) -> bool:
    axis = tf.get_static_value(operation.inputs[1])
    return _has_other_axes(axis, operation.outputs[0].shape.rank)


def _encodes(operation: Any) -> bool:
    return _has_other_axes(operation.get_attr("axis"), operation.outputs[0].shape.rank)


def _removes_other_axes(operation: Any) -> bool:
    axes = operation.get_attr("squeeze_dims")
    return bool(axes) and _has_other_axes(axes, operation.inputs[0].shape.rank)


def _slices_other_axes(operation: Any) -> bool:
    """Tell whether a slice begins with all rows: `x[:, …]`, or `x[..., …]`."""
    rank, strides = operation.inputs[0].shape.rank, tf.get_static_value(operation.inputs[3])
    if rank is None or strides is None:
        return False

    def is_set(mask: str) -> bool:
        return bool(operation.get_attr(mask) & 1)

    if is_set("ellipsis_mask"):
        added = operation.get_attr("new_axis_mask").bit_count()
        return bool(len(strides) - 1 - added < rank)
    changes = is_set("new_axis_mask") or is_set("shrink_axis_mask")
    return is_set("begin_mask") and is_set("end_mask") and not changes and int(strides[0]) == 1


def _reshapes_each(operation: Any) -> bool:
    """Tell whether a `reshape` to [-1, …] changes the shape of each row."""
    row, shape = operation.inputs[0].shape[1:], tf.get_static_value(operation.inputs[1])
    if shape is None or not len(shape) or shape[0] != -1:
        return False
    of_row = row.num_elements() if row.is_fully_defined() else None
    return bool(of_row is not None and of_row == np.prod(shape[1:]))


KEEPS_ROWS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(OF_PICTURES, lambda _: True),
    **dict.fromkeys(OVER_AXES, _reduces_other_axes),
    "EnsureShape": lambda operation: operation.outputs[0].shape[0] is None,
    "ExpandDims": _adds_other_axis,
    "OneHot": _encodes,
    "Reshape": _reshapes_each,
    "Squeeze": _removes_other_axes,
    "StridedSlice": _slices_other_axes,
}
"""Operations on rows and fixed numbers, and whether the result has the same rows."""
