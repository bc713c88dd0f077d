"""Makes the engine's `tf.function`s, and lists the operations of any function."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

# Operations of `tf.random`, which keep their state to themselves.
DRAWS = (
    *("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal"),
    *("ParameterizedTruncatedNormal", "RandomShuffle", "Multinomial", "RandomGamma"),
    *("RandomPoisson", "RandomPoissonV2"),
)


def function_of(call: Callable[..., Any], **options: Any) -> Any:
    """Return a `tf.function` of one of the engine's functions, with its own count of traces.

    TensorFlow counts the traces of all functions with the same code together. It would warn of
    retracing when a script makes many models in a loop, though each is traced once. A `partial` has
    no code of its own, so it is counted separately.
    """
    return tf.function(partial(call), autograph=False, reduce_retracing=True, **options)


def runs_eagerly(model: Any) -> bool:
    """Tell whether a model's steps run as Python, by its own switch or by TensorFlow's."""
    return bool(model.run_eagerly or tf.config.functions_run_eagerly())


def nodes_within(graph: tf.Graph) -> Iterator[Any]:
    """Yield the nodes of a function's graph, and of all functions that it calls."""
    definition = graph.as_graph_def()
    yield from definition.node
    for nodes in nodes_of_functions(definition).values():
        yield from nodes


def seeded_draws_in(graph: tf.Graph) -> list[str]:
    """Return the kinds of operations that draw from TensorFlow's seeded, hidden generators."""
    drawing = [one for one in nodes_within(graph) if one.op in DRAWS]
    return sorted({one.op for one in drawing if one.attr["seed"].i or one.attr["seed2"].i})


def nodes_of_functions(definition: Any) -> dict[str, Sequence[Any]]:
    """Return the nodes of each function that a GraphDef's graph calls, by the function's name."""
    return {one.signature.name: one.node_def for one in definition.library.function}
