"""Explains failures of programs that use a batch size in a step.

Each of several replicas gets a share of a batch, and the script's own batch size does not fit it.
For example, `tf.random.normal((BATCH, 4))` has 16 rows where the share has 8. Such a step fails on
a share, but not on the whole batch. To find out, the step is traced on both. It is never run, but
the assertions in its graph that depend on shapes alone are evaluated.

The number of a share's rows may be unknown when a step is traced, although that of a whole batch is
known. Then `x.shape[0]` is None.
"""

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data.batch_shares import count_in, cut
from cluster_trainer.engine.data.pieces import Component, has_rows
from cluster_trainer.engine.failed_step.tracing import (
    VARIABLES,
    first_line,
    frames_of,
    traced,
    traced_on_spec,
)
from cluster_trainer.engine.replicas import statistics
from cluster_trainer.private import keras_names
from cluster_trainer.problems import Problem
from cluster_trainer.user_frames import last_of_a_user, place_of_call

OF_SHAPES = (ValueError, TypeError, AssertionError, tf.errors.InvalidArgumentError)
TELLS_OF_SHAPES = re.compile(
    r"shape|dimension|broadcast|elements|incompatible|batch size|did not hold|assertion failed",
    re.IGNORECASE,
)
OF_COUNTERS = (
    "the model or its step changes whole numbers of its own, such as a count of steps, and they "
    "may depend on the number of rows"
)


def may_be_of_shapes(error: Exception) -> bool:
    """Tell whether an error may come from a fixed batch size, wherever it was raised."""
    tells = isinstance(error, AssertionError) or TELLS_OF_SHAPES.search(str(error))
    return isinstance(error, OF_SHAPES) and bool(tells)


def problem(
    model: Any, step: str, components: Sequence[Component], whole: Any, error: Exception
) -> Problem | None:
    """Return the problem with the number of rows of a batch's shares; None if there is none.

    Args:
        model: the model.
        step: the name of its step.
        components: the parts of a batch that were batched together.
        whole: a whole batch.
        error: the error of the step that has run or was traced, in case that tracing raises none.
    """
    replicas = Replicas.of(model.distribute_strategy)
    shares = [one[0] for one in cut(whole, replicas, components)]
    rows, by_size = count_in(whole), {count_in(one): one for one in shares}
    by_size.pop(rows, None)
    # The whole batch comes first, so that unbuilt layers are built for it.
    if not by_size or traced(model, step, whole).fails:
        return None
    for of_share, share in by_size.items():
        failed = traced(model, step, share)
        if failed.fails:
            return Problem(
                f"the batch size in {step}",
                failed.place or place_of_call(),
                f"the rows that a step is given: with {replicas.total} replicas a share, such as "
                f"{of_share} rows of a batch of {rows}",
                _advice(model, failed.graph, failed.error or error, rows),
            )
    return None


def problem_of_unknown_size(model: Any, step: str, spec: Any, whole: Any) -> Problem | None:
    """Return the problem with a share's unknown number of rows; None if there is none.

    Args:
        model: the model.
        step: the name of its step.
        spec: the specification of a whole batch on one device; None: that of `whole`.
        whole: a whole batch.
    """
    replicas, rows = Replicas.of(model.distribute_strategy), count_in(whole)
    why = _why_unknown(model, rows, replicas)
    whole_is_traced = traced(model, step, whole) if spec is None else None
    if not why or (whole_is_traced or traced_on_spec(model, step, spec)).fails:
        return None
    known = tf.nest.map_structure(_spec_of, whole) if spec is None else spec
    failed = traced_on_spec(model, step, tf.nest.map_structure(_of_unknown_rows, known))
    if failed.error is None:
        return None
    return Problem(
        f"the batch size in {step}",
        failed.place or place_of_call(),
        "a number of rows that is known only when the step runs: each of "
        f"{replicas.total} replicas is given a share of a batch of {rows} rows",
        f"On one device `x.shape[0]` is {rows}. Here it is None while the step is traced, because "
        f"{why}. Write `tf.shape(x)[0]` or `keras.ops.shape(x)[0]`, where `x` is the input of the "
        f"step, layer or loss. The error is: {first_line(failed.error)}",
    )


def _why_unknown(model: Any, rows: int, replicas: Replicas) -> str:
    """Return why the engine does not know the number of a share's rows; "" if it knows it."""
    if replicas.most is not None:
        return "a worker may be missing (MIN_WORKERS), so that the shares are larger"
    if replicas.share_of(rows) is None:
        return f"{rows} rows cannot be divided equally among {replicas.total} replicas"
    steps = model.train_function, model.test_function
    has_numbers = any(getattr(one, "counts_untracked", False) for one in steps)
    return OF_COUNTERS if has_numbers or statistics.whole_numbers(model) else ""


def _spec_of(leaf: Any) -> Any:
    return None if leaf is None else tf.type_spec_from_value(leaf)


def _of_unknown_rows(spec: Any) -> Any:
    if not (isinstance(spec, tf.TensorSpec) and has_rows(spec)):
        return spec
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)


def _advice(model: Any, graph: Any, error: Exception, rows: int) -> str:
    """Return advice for a step that fails on a share."""
    says = f"The error is: {first_line(error)}"
    if any(getattr(one, "stateful", False) is True for one in keras_names.layers_within(model)):
        return (
            "A stateful RNN keeps a state for each row of the whole batch, which cannot be "
            f"divided among replicas: use `stateful=False`, or train on one worker. {says}"
        )
    made = _made_at(graph, rows)
    where = f" {rows} rows are made at {made}." if made else ""
    return (
        "On one device the step works. Write `tf.shape(x)[0]` or `keras.ops.shape(x)[0]` for the "
        "batch size, where `x` is the input of the step, layer or loss, and -1 in a reshape. Give "
        "`keras.Input` no `batch_size`. If a step divides its rows, as in `tf.split(x, 4)`, choose "
        f"a batch size whose shares can be divided, and leave out a short last batch.{where} {says}"
    )


def _made_at(graph: Any, rows: int) -> str:
    """Return where a tensor of `rows` rows was made from tensors of other sizes; "" if unknown."""
    for operation in reversed(graph.get_operations()):
        inputs_have = any(_has_rows(one, rows) for one in operation.inputs)
        if operation.type in VARIABLES or inputs_have:
            continue
        has_rows = any(_has_rows(one, rows) for one in operation.outputs)
        if has_rows and (place := last_of_a_user(frames_of(operation))):
            return place
    return ""


def _has_rows(tensor: Any, rows: int) -> bool:
    return bool(tensor.shape.rank) and tensor.shape[0] == rows
