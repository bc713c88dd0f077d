"""Tells whether a traced tensor's first axis may still be that of a batch's examples."""

from typing import Any

import numpy as np
import tensorflow as tf

REDUCTIONS = frozenset({"Mean", "Sum", "Prod", "Max", "Min"})
ELEMENTWISE = frozenset(
    {
        *("Abs", "AddV2", "Cast", "DivNoNan", "Exp", "Identity", "Log", "Log1p", "Maximum"),
        *("Minimum", "Mul", "MulNoNan", "Neg", "Pow", "RealDiv", "Sqrt", "Square"),
        *("SquaredDifference", "StopGradient", "Sub"),
    }
)


def is_reduced(value: Any) -> bool:
    """Tell whether a tensor comes from a reduction over its first axis, or is a stack of scalars.

    Only elementwise operations may lie between. A tensor of a step that runs eagerly does not tell
    where it comes from.

    Args:
        value: a tensor [n, …].
    """
    waiting, seen = [value], set()
    while waiting:
        tensor = waiting.pop()
        if not tf.is_symbolic_tensor(tensor) or tensor.op.name in seen:
            continue
        operation: Any = tensor.op
        seen.add(operation.name)
        if operation.type == "Pack" and operation.get_attr("axis") == 0:
            return True
        if operation.type in REDUCTIONS:
            reduced, axes = operation.inputs
            if _contains_first(axes, reduced.shape.rank):
                return True
            waiting.append(reduced)
        elif operation.type in ELEMENTWISE:
            waiting += [one for one in operation.inputs if one.shape.rank]
    return False


def _contains_first(axes: Any, rank: int | None) -> bool:
    """Tell whether the first axis is one of the axes of a reduction."""
    known = tf.get_static_value(axes)
    return known is not None and bool(rank) and 0 in np.ravel(known) % rank
