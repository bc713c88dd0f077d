"""Traces a step on a batch, without running it, and finds errors and their places."""

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.compat.v1.graph_util import extract_sub_graph

from cluster_trainer.engine.replicas import step_context
from cluster_trainer.engine.replicas.state.writes import BRANCHES
from cluster_trainer.private import keras_names, tensorflow_names
from cluster_trainer.user_frames import last_of_a_user

GUARD = "AssertGuard"
"""Part of the name of the branch into which TensorFlow puts an assertion. An assertion that shows
only integers and strings has no branch."""
OURS = "/cluster_trainer/"
STEPS = tuple(
    f"/cluster_trainer/engine/{name}.py" for name in ("steps", "step_loop", "predictions")
)
IN_USER_CODE = re.compile(r'File "([^"]+)", line (\d+)')
VARIABLES = ("ReadVariableOp", "VarHandleOp", "Placeholder")
ESCAPES = re.compile(r"\x1b\[\d*m")
HEADING = re.compile(
    r"Exception encountered|in user code|File |Graph execution error|Detected at node|<stack"
)
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

    @property
    def fails(self) -> bool:
        """Whether the step fails, as far as a trace shows."""
        return bool(self.error or self.failed_assertion())

    def failed_assertion(self) -> tf.Operation | None:
        """Return a failing assertion that depends on shapes alone; None if there is none."""
        graph = self.graph
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
                (value,) = tf.import_graph_def(
                    definition, return_elements=[condition.name], name=""
                )
                if not session.run(value).all():
                    return operation
        return None

    @property
    def place(self) -> str:
        """The place in the user's code at which the step fails; "" if it is unknown."""
        if self.error:
            return place_of(self.error)
        failed = self.failed_assertion()
        return last_of_a_user(frames_of(failed)) if failed else ""


def step_of(model: Any, step: str) -> Any:
    """Return a model's step as the engine computes it, from a batch to its logs."""
    of_model = getattr(model, step)
    return keras_names.with_optionals(model, tensorflow_names.converted_from(of_model))


def traced(model: Any, step: str, batch: Any) -> Traced:
    """Trace a step on each replica with a batch as its share, without running it."""
    return _traced(model, step, batch, ())


def traced_on_spec(model: Any, step: str, spec: Any) -> Traced:
    """Trace a step like `traced`, with the specification of a batch."""
    return _traced(model, step, None, (spec,))


def _traced(model: Any, step: str, batch: Any, spec: Sequence[Any]) -> Traced:
    strategy, compute = model.distribute_strategy, step_of(model, step)
    graphs: list[Any] = []

    def on_all(*symbols: Any) -> None:
        graphs.append(tf.compat.v1.get_default_graph())
        given = symbols[0] if symbols else batch

        def on_replica() -> None:
            with step_context.computing(tf.ones([])) as part:
                part.applies = False
                compute(given)

        strategy.run(on_replica)

    try:
        tf.function(on_all, autograph=False).get_concrete_function(*spec)
    except Exception as error:  # noqa: BLE001  a user's own code may raise anything
        return Traced(error, graphs[-1])
    return Traced(None, graphs[-1])


def is_of_step(error: Exception) -> bool:
    """Tell whether an error was raised while the engine traced or ran a step."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(one.filename.endswith(STEPS) for one in frames)


def place_of(error: Exception) -> str:
    """Return the place in the user's code that raised an error; "" if it is unknown."""
    frames = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__)]
    # The places in code that AutoGraph has rewritten are in the text only.
    frames += [(file, int(line)) for file, line in IN_USER_CODE.findall(str(error))]
    return last_of_a_user(frames)


def frames_of(operation: Any) -> list[tuple[str, int]]:
    """Return the stack in which an operation was made, from the engine's innermost frame on."""
    frames = [(one.filename, one.lineno) for one in operation.traceback]
    ours = [place for place, (file, _) in enumerate(frames) if OURS in file]
    return frames[ours[-1] :] if ours else frames


def first_line(error: Exception) -> str:
    """Return the first informative line of an error, shortened."""
    lines = [line.strip() for line in ESCAPES.sub("", str(error)).splitlines()]
    said = (line for line in lines if line and not HEADING.match(line))
    return next(said, "")[:SHOWN_CHARACTERS]
