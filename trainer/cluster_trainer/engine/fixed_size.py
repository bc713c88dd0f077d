"""Explains failures of programs that use a fixed batch size in a step.

Each of several replicas gets a share of a batch, and the script's own batch size does not fit it.
For example, `tf.random.normal((BATCH, 4))` has 16 rows where the share has 8. Such a step fails on
a share, but not on the whole batch. To find out, the step is traced on both. It is never run, but
the assertions in its graph that depend on shapes alone are evaluated.
"""

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.compat.v1.graph_util import extract_sub_graph

from cluster_trainer.collectives.replicas import Replicas, count_of, ring_of
from cluster_trainer.engine.building.unbuilt import Unbuilt
from cluster_trainer.engine.data.batch_shares import count_in, cut
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.engine.replicas.state.writes import BRANCHES
from cluster_trainer.private import keras_names, tensorflow_names
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.user_frames import last_of_a_user, place_of_call

OF_SHAPES = (ValueError, TypeError, AssertionError, tf.errors.InvalidArgumentError)
TELLS_OF_SHAPES = re.compile(
    r"shape|dimension|broadcast|elements|incompatible|batch size|did not hold|assertion failed",
    re.IGNORECASE,
)
RUNS = "Graph execution error"
"""Text in the errors of steps that ran, not of those that were only traced."""
GUARD = "AssertGuard"
"""Part of the name of the branch into which TensorFlow puts an assertion. An assertion that shows
only integers and strings has no branch."""
OURS = "/cluster_trainer/"
IN_USER_CODE = re.compile(r'File "([^"]+)", line (\d+)')
VARIABLES = ("ReadVariableOp", "VarHandleOp", "Placeholder")
ESCAPES = re.compile(r"\x1b\[\d*m")
STEPS = {
    **dict.fromkeys(("fit", "train_on_batch"), "train_step"),
    **dict.fromkeys(("evaluate", "test_on_batch"), "test_step"),
    **dict.fromkeys(("predict", "predict_on_batch"), "predict_step"),
}
HEADING = re.compile(rf"Exception encountered|in user code|File |{RUNS}|Detected at node|<stack")
SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class Traced:
    """The result of tracing a step.

    Attributes:
        error: the error that tracing raised; None: tracing succeeded.
        graph: the graph, with the operations traced before the error.
    """

    error: Exception | None
    graph: Any


@contextmanager
def explained(model: Any, name: str, batch: Callable[[], Any]) -> Iterator[None]:
    """Explain the failure of a call in the context if a fixed batch size is the cause.

    Args:
        model: the model that is called.
        name: the name of the call, a key of STEPS.
        batch: returns a whole batch of the call's data, as one device would get it; None if there
            is none.

    Raises:
        ConfigurationError: a fixed batch size is the cause; it names the place in the script.
    """
    if count_of(model.distribute_strategy) == 1:
        yield
        return
    unbuilt, before = Unbuilt(model), _last_logs(model)
    try:
        yield
    except OF_SHAPES as error:
        ring = ring_of(model.distribute_strategy)
        may_be_of_shapes = isinstance(error, AssertionError) or TELLS_OF_SHAPES.search(str(error))
        if (ring and ring.error) or not may_be_of_shapes:
            raise
        # If steps ran, the whole model is built and may have trained, so it is not restored.
        has_run = RUNS in str(error) or _last_logs(model) is not before
        restore = _nothing if has_run else unbuilt.restore
        if problem := _problem(model, STEPS[name], restore, batch, error):
            raise ConfigurationError([problem]) from error
        restore()  # tracing may have built something
        raise


def _last_logs(model: Any) -> Any:
    """Return the logs of a model's last call in a `fit`; each call creates a new object."""
    return getattr(model.train_function, "logs", None) or None


def _nothing() -> None:
    pass


def _problem(
    model: Any, step: str, restore: Callable[[], None], batch: Callable[[], Any], error: Exception
) -> Problem | None:
    """Return the problem with a fixed batch size; None if the cause is unclear or another one."""
    replicas = Replicas.of(model.distribute_strategy)
    try:
        restore()
        whole = batch()
        share = cut(whole, replicas)[0][0]
        rows, of_share = count_in(whole), count_in(share)
        # The whole batch comes first, so that unbuilt layers are built for it.
        if rows == of_share or _fails(_traced(model, step, whole)):
            return None
        traced = _traced(model, step, share)
        failed = None if traced.error else _failed_assertion(traced.graph)
    except Exception:  # noqa: BLE001  the original error is raised instead
        return None
    if traced.error:
        place, error = _place(traced.error), traced.error
    elif failed:
        place = last_of_a_user(_frames(failed))
    else:
        return None
    return Problem(
        f"the batch size in {step}",
        place or place_of_call(),
        f"the rows that a step is given: with {replicas.total} replicas a share, such as "
        f"{of_share} rows of a batch of {rows}",
        _advice(model, traced.graph, error, rows),
    )


def _fails(traced: Traced) -> bool:
    return bool(traced.error or _failed_assertion(traced.graph))


def _failed_assertion(graph: Any) -> tf.Operation | None:
    """Return a failing assertion that depends on shapes alone; None if there is none."""
    whole = graph.as_graph_def()
    for operation in graph.get_operations():
        is_guarded = GUARD in operation.name and operation.type in BRANCHES
        if not (is_guarded or operation.type == "Assert"):
            continue
        condition = operation.inputs[0]
        definition = extract_sub_graph(whole, [condition.op.name])
        makers = [graph.get_operation_by_name(one.name) for one in definition.node]
        if any(one.type in VARIABLES or tensorflow_names.is_stateful(one) for one in makers):
            continue
        with tf.Graph().as_default() as alone, tf.compat.v1.Session(graph=alone) as session:
            (value,) = tf.import_graph_def(definition, return_elements=[condition.name], name="")
            if not session.run(value).all():
                return operation
    return None


def _traced(model: Any, step: str, batch: Any) -> Traced:
    """Trace a step on each replica with a batch as its share, without running it."""
    strategy, of_model = model.distribute_strategy, getattr(model, step)
    compute = keras_names.with_optionals(model, tensorflow_names.converted_from(of_model))
    graphs: list[Any] = []

    def on_replica() -> None:
        with step_context.computing(tf.ones([])) as part:
            part.applies = False
            compute(batch)

    def on_all() -> None:
        graphs.append(tf.compat.v1.get_default_graph())
        strategy.run(on_replica)

    try:
        tf.function(on_all, autograph=False).get_concrete_function()
    except Exception as error:  # noqa: BLE001  a user's own code may raise anything
        return Traced(error, graphs[-1])
    return Traced(None, graphs[-1])


def _advice(model: Any, graph: Any, error: Exception, rows: int) -> str:
    """Return advice for a step that fails on a share."""
    says = f"The error is: {_first_line(error)}"
    if any(getattr(one, "stateful", False) is True for one in keras_names.layers_within(model)):
        does = (
            "A stateful RNN keeps a state for each row of the whole batch, which cannot be "
            "divided among replicas: use `stateful=False`, or train on one worker."
        )
        return f"{does} {says}"
    made = _made_at(graph, rows)
    where = f" {rows} rows are made at {made}." if made else ""
    does = (
        "Write `tf.shape(x)[0]` or `keras.ops.shape(x)[0]` for the batch size, where `x` is the "
        "input of the step, layer or loss, and -1 in a reshape. Give `keras.Input` no "
        "`batch_size`."
    )
    return f"{does}{where} {says}"


def _place(error: Exception) -> str:
    """Return the place in the user's code that raised an error; "" if it is unknown."""
    frames = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__)]
    # The places in code that AutoGraph has rewritten are in the text only.
    frames += [(file, int(line)) for file, line in IN_USER_CODE.findall(str(error))]
    return last_of_a_user(frames)


def _made_at(graph: Any, rows: int) -> str:
    """Return where a tensor of `rows` rows was made from tensors of other sizes; "" if unknown."""
    for operation in reversed(graph.get_operations()):
        inputs_have = any(_has_rows(one, rows) for one in operation.inputs)
        if operation.type in VARIABLES or inputs_have:
            continue
        has_rows = any(_has_rows(one, rows) for one in operation.outputs)
        if has_rows and (place := last_of_a_user(_frames(operation))):
            return place
    return ""


def _frames(operation: Any) -> list[tuple[str, int]]:
    """Return the stack in which an operation was made, from the engine's innermost frame on."""
    frames = [(one.filename, one.lineno) for one in operation.traceback]
    ours = [place for place, (file, _) in enumerate(frames) if OURS in file]
    return frames[ours[-1] :] if ours else frames


def _has_rows(tensor: Any, rows: int) -> bool:
    return bool(tensor.shape.rank) and tensor.shape[0] == rows


def _first_line(error: Exception) -> str:
    """Return the first informative line of an error, shortened."""
    lines = [line.strip() for line in ESCAPES.sub("", str(error)).splitlines()]
    said = (line for line in lines if line and not HEADING.match(line))
    return next(said, "")[:SHOWN_CHARACTERS]
