"""Finds variables that a step uses, but that belong to no part of the model.

Examples are the moving average within a loss object, the running mean of a helper that normalises
rewards, and the statistics of a network that the script has not made an attribute of its model.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.engine.replicas import statistics, step_context
from cluster_trainer.engine.replicas.state.writes import writes_to
from cluster_trainer.private import keras_names, tensorflow_names


def untracked(model: keras.Model, part: step_context.Share) -> list[Any]:
    """Return the untracked variables of a step that was just traced, in the order of their use.

    Variables of optimizers, metrics and seed generators are omitted, even if the model does not
    track these objects. Of a step that runs eagerly, only the variables that it assigns are known,
    and not those that a `tf.function` of the script's own assigns.
    """
    eagerly = {place: one for place, (one, _) in part.assigned.items()}
    used = eagerly if tf.executing_eagerly() else _used()
    known = {id(one.handle) for one in _copies_of_known(model, part)}
    found = [one for place, one in used.items() if place not in known]
    kept = map(tensorflow_names.with_copies, found)
    return [
        one
        for one in kept
        if one.aggregation is not tf.VariableAggregation.SUM and step_context.is_of_all(one)
    ]


def assigned() -> dict[int, Any]:
    """Return the variables that a function just traced assigns, by `id`, in the order of their use.

    They include those of the model, of optimizers and of metrics.
    """
    used, captures = _used(), getattr(tf.compat.v1.get_default_graph(), "captures", ())
    places = [id(outer) for outer, inner in captures if id(outer) in used and writes_to(inner)]
    found = [tensorflow_names.with_copies(used[place]) for place in places]
    return {id(one): one for one in found}


def _used() -> dict[int, Any]:
    """Return the variables that a graph uses, by the `id` of their handles, in order."""
    graph = tf.compat.v1.get_default_graph()
    used = {id(one.handle): one for one in tensorflow_names.used_in(graph)}
    places = (id(outer) for outer, _ in getattr(graph, "captures", ()))
    return {place: used[place] for place in places if place in used}


def noting(assign: Callable[..., Any]) -> Callable[..., Any]:
    """Return a variable's `assign` that notes the variable in a step, outside of optimizers."""

    @wraps(assign)
    def assign_and_note(self: Any, *arguments: Any, **keywords: Any) -> Any:
        part = step_context.current()
        if part is not None and not part.is_reduced:
            part.moves[id(self.handle)] += 1
            if id(self.handle) not in part.assigned:
                before = tf.identity(self) if tf.executing_eagerly() else None
                part.assigned[id(self.handle)] = self, before
        return assign(self, *arguments, **keywords)

    return assign_and_note


def _copies_of_known(model: keras.Model, part: step_context.Share) -> Iterator[Any]:
    for one in _known(model, part):
        yield from tensorflow_names.copies_of(step_context.tensorflow_variable(one))


def _known(model: keras.Model, part: step_context.Share) -> Iterator[Any]:
    """Yield the variables of a model, and of the optimizers that were given gradients."""
    yield from model.variables
    for layer in keras_names.layers_within(model):
        yield from keras_names.own_trainable(layer)
        yield from keras_names.own_non_trainable(layer)
        yield from (one.state for one in keras_names.seed_generators(layer))
        yield from statistics.plain_variables(layer)
    for metric in model.metrics:
        yield from metric.variables
    for optimizer in [*keras_names.optimizers_of(model), *part.optimizers.values()]:
        yield from optimizer.variables
        yield from keras_names.trained_by(getattr(optimizer, "inner_optimizer", optimizer))
    yield from part.seed_states
