"""Tells whether the result of a `map`'s function depends on its input alone."""

from typing import Any

import tensorflow as tf

from cluster_trainer.engine.functions import nodes_within
from cluster_trainer.private import tensorflow_names

CALLS = ("StatefulPartitionedCall", "If", "While", "Case")
"""Operations that call functions, whose own operations are examined, too."""
READS = ("ReadVariableOp", "ResourceGather", "LookupTableFindV2", "LookupTableSizeV2")
"""Operations that read a variable or a table, and do not change it."""
HARMLESS = (*CALLS, *READS, "Assert")


def is_stateless(function: Any) -> bool:
    """Tell whether a function's result depends on its input alone; see `state_of`."""
    return not state_of(function)


def state_of(function: Any) -> str:
    """Return the type of an operation whose result may depend on earlier calls; "" if none does.

    Such operations draw random numbers, call Python, count, or read a queue. Operations of other
    libraries are unknown, and are reported, too. So are datasets that the function captures.
    """
    if any(one.dtype == tf.variant for one in function.captured_inputs):
        return "Dataset"
    kinds = (node.op for node in nodes_within(function.graph) if node.op not in HARMLESS)
    return next(filter(tensorflow_names.has_effects, kinds), "")
