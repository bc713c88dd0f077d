"""Gives a queue of examples, as in MoCo and NNCLR, the rows of all replicas.

A step assigns the rows of its batch to a queue, followed by the queue's earlier rows
(`q.assign(concat([rows, q])[:size])`). With the share's rows alone, each replica would have its own
queue, and a mean of queues is not a queue. The assignment is recognised while a step is traced.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.replicas import gathered
from cluster_trainer.engine.replicas import losses, step_context
from cluster_trainer.private import tensorflow_names
from cluster_trainer.problems import Problem

# Operations that pass rows on in their order.
PASSED = ("Identity", "Cast", "StopGradient", "StridedSlice", "Slice", "EnsureShape")
NO_MEAN = Problem(
    "TRAINER_SYNC_EVERY",
    "above 1, with a queue of examples that a step assigns",
    "1",
    "Each worker would have its own queue, and queues cannot be averaged.",
)
MARK = "_cluster_trainer_is_queue"
_assign = tensorflow_names.ASSIGN.own


def is_queue(copy: Any) -> bool:
    """Tell whether a traced step uses a replica's copy of a variable as a queue."""
    return getattr(copy, MARK, False)


def has_moved_on(before: np.ndarray, now: np.ndarray, rows: int) -> bool:
    """Tell whether a step has put a share's rows before or behind the rows that a variable had.

    Args:
        before: the variable's value before the step, [n, …].
        now: its value after it.
        rows: the number of the share's rows.
    """
    if now.ndim == 0 or not 0 < rows < len(now) or np.array_equal(before, now):
        return False
    are_first = np.array_equal(now[rows:], before[:-rows])
    return are_first or np.array_equal(now[:-rows], before[rows:])


def is_traced() -> bool:
    """Tell whether a step of several replicas is being traced, outside of an optimizer."""
    part = step_context.current()
    return part is not None and not part.is_reduced and not tf.executing_eagerly()


def assigned(self: Any, value: Any, *arguments: Any, **keywords: Any) -> Any:
    """Assign to a variable; a queue gets the rows of all replicas."""
    parts = _parts_of_queue(self, value)
    if parts:
        setattr(self, MARK, True)
        value = _of_all(self, parts)
    return _assign(self, value, *arguments, **keywords)


def _parts_of_queue(variable: Any, value: Any) -> Sequence[tf.Tensor]:
    """Return the parts that are concatenated to a queue's new rows; () if it is not a queue.

    The queue's own rows are the first or the last part, and all other parts have the share's rows.
    """
    joined = _source(value)
    if joined is None or joined.op.type != "ConcatV2" or not variable.shape.rank:
        return ()
    *parts, axis = joined.op.inputs
    are_own = [_is_of(variable, part) for part in parts]
    others = [part for part, is_own in zip(parts, are_own, strict=True) if not is_own]
    is_one = len(others) == len(parts) - 1 and (are_own[0] or are_own[-1])
    is_of_rows = tf.get_static_value(axis) == 0 and all(map(losses.is_of_each, others))
    return parts if is_one and is_of_rows and others else ()


def _of_all(variable: Any, parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the rows of all replicas, and as many of the queue's earlier rows as still fit."""
    share = step_context.current()
    assert share is not None  # noqa: S101  `assigned` is called only if `is_traced`
    if share.is_own_step:
        share.problems.append(NO_MEAN)

    def with_others(part: tf.Tensor) -> tf.Tensor:
        count = tf.where(share.weight > 0, tf.shape(part)[0], 0)  # not a borrowed row
        return gathered(part[:count], "training (a queue)")

    rows = tf.concat([p if _is_of(variable, p) else with_others(p) for p in parts], 0)
    kept = _that_fit(variable.shape[0], rows, are_new_last=_is_of(variable, parts[0]))
    return tf.cast(tf.ensure_shape(kept, variable.shape), variable.dtype)


def _that_fit(size: int | None, rows: tf.Tensor, *, are_new_last: bool) -> tf.Tensor:
    """Return the newest rows; all of them if the queue has no fixed size."""
    if size is None:
        return rows
    return rows[-size:] if are_new_last else rows[:size]


def _is_of(variable: Any, part: tf.Tensor) -> bool:
    """Tell whether rows are read from a variable."""
    source = _source(part)
    if source is None or source.op.type != "ReadVariableOp":
        return False
    graph = source.graph
    own = graph.capture(variable.handle) if hasattr(graph, "capture") else variable.handle
    return bool(source.op.inputs[0].name == own.name)


def _source(value: Any) -> tf.Tensor | None:
    """Return the origin of rows; None if it is unknown."""
    while isinstance(value, tf.Tensor) and hasattr(value, "graph"):
        if value.op.type not in PASSED:
            return value
        value = value.op.inputs[0]
    return None
