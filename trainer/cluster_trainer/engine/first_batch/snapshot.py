"""What a step may change, as it was before the first batch was computed both ways."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives import over_ring
from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.functions import nodes_within
from cluster_trainer.engine.replicas import queues
from cluster_trainer.engine.replicas.random_layers import global_seed
from cluster_trainer.private import keras_names, tensorflow_names

# What cannot be put back once a step has used it.
CALLS = ("PyFunc", "EagerPyFunc")  # PyFuncStateless is said to change nothing
USED_UP = ("IteratorGetNext", "LookupTableInsertV2", "LookupTableImportV2", "QueueDequeueV2")


class Variable(NamedTuple):
    """A variable's resource, or that of one replica's copy."""

    handle: Any
    dtype: tf.DType

    def read(self) -> tf.Tensor:
        """Return its value, which stays as it is whatever is assigned."""
        return tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype)

    def write(self, value: tf.Tensor) -> None:
        """Give it a value."""
        tf.raw_ops.AssignVariableOp(resource=self.handle, value=value)


class Snapshot:
    """All that a step may change: variables, and attributes of the model and its layers.

    Nothing is copied until something is assigned.

    Args:
        model: whose step it is.
        traced: the step; None: it runs eagerly, and only what the model tracks is known.
    """

    def __init__(self, model: keras.Model, traced: Any = None) -> None:
        known = {id(one.handle): one for one in _copies(_of_model(model))}
        captured = [] if traced is None else traced.graph.external_captures
        known |= {id(one): Variable(one, dtype) for one, dtype in _variables_in(captured)}
        self._before = {key: (one, one.read()) for key, one in known.items()}
        self._attributes = [(one, dict(vars(one))) for one in keras_names.layers_within(model)]
        local = Replicas.of(model.distribute_strategy).local
        own = _own_state(model, self._before)
        self._own = {name: copies for name, copies in own.items() if len(copies) == local}

    def restore(self) -> None:
        """Give all of it what it had before, bit for bit."""
        for variable, value in self._before.values():
            variable.write(value)
        for layer, before in self._attributes:
            vars(layer).clear()
            vars(layer).update(before)

    def own_values(self) -> dict[str, list[np.ndarray]]:
        """Return what the program's own state holds: each local replica's, by its name."""
        return {name: [one.read().numpy() for one in copies] for name, copies in self._own.items()}


def uses_something_up(traced: Any, known_iterators: int) -> bool:
    """Tell whether a traced step takes from an iterator, a queue or a table of its own.

    Args:
        traced: the step.
        known_iterators: how often it takes a batch.
    """
    captured = traced.graph.external_captures
    others = [one for one in captured if one.dtype == tf.resource and _dtype_of(one) is None]
    if not others:
        return False
    return sum(node.op in USED_UP for node in nodes_within(traced.graph)) > known_iterators


def calls_python(traced: Any) -> bool:
    """Tell whether a traced step calls a function of the script's own, and not only the ring's."""
    own = [node for node in nodes_within(traced.graph) if node.op in CALLS]
    return any(over_ring.SUM not in node.name for node in own)


def _variables_in(captured: Iterable[Any]) -> Iterable[tuple[Any, tf.DType]]:
    for one in captured:
        if one.dtype == tf.resource and (dtype := _dtype_of(one)) is not None:
            yield one, dtype


def _dtype_of(resource: Any) -> tf.DType | None:
    """Return the type of a variable's numbers; None: it is none."""
    data = tensorflow_names.handle_data(resource)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    return tf.as_dtype(data.shape_and_type[0].dtype)


def _of_model(model: Any) -> list[Any]:
    found = [*model.variables, *_of_metrics(model), *_of_layers(model), *global_seed()]
    for layer in keras_names.layers_within(model):
        found += [one for one in vars(layer).values() if isinstance(one, tf.Variable)]
    for optimizer in keras_names.optimizers_of(model):
        found += optimizer.variables
    return found


def _copies(variables: Iterable[Any]) -> list[Variable]:
    """Return the resources of variables, Keras's or TensorFlow's: one of each local replica."""
    found = []
    for variable in variables:
        found += [Variable(part.handle, part.dtype) for part in _parts(variable)]
    return found


def _parts(variable: Any) -> Any:
    """Return the local replicas' copies of a variable, Keras's or TensorFlow's."""
    value = variable if isinstance(variable, tf.Variable) else variable.value
    return value.values if isinstance(value, tensorflow_names.DistributedVariable) else [value]


def _own_state(model: Any, known: Mapping[int, Any]) -> dict[str, list[Variable]]:
    """Return the numbers that a step may assign otherwise than by an optimizer, by name.

    Metrics and what counts random draws are none of them. An optimizer's learning rate is one.
    """
    others = [*_of_metrics(model), *states_of_draws(model), *global_seed()]
    for optimizer in keras_names.optimizers_of(model):
        rate = keras_names.rate_variable(optimizer)
        others += [one for one in optimizer.variables if one is not rate]
    left_out = {id(one.handle) for one in _copies(others)}
    own: dict[str, list[Variable]] = {}
    for variable in _of_model(model):
        copies = _copies([variable])
        is_own = copies[0].dtype.is_floating and id(copies[0].handle) not in left_out
        if any(map(queues.is_queue, _parts(variable))):  # whose rows only a trace gathers
            left_out |= {id(one.handle) for one in copies}
            continue
        if is_own and not any(id(one.handle) in left_out for one in copies):
            own[getattr(variable, "path", variable.name)] = copies
            left_out |= {id(one.handle) for one in copies}
    untracked = [one for key, (one, _) in known.items() if key not in left_out]
    for number, one in enumerate(one for one in untracked if one.dtype.is_floating):
        own[f"variable {number + 1} that the model does not track"] = [one]
    return own


def _of_metrics(model: Any) -> list[Any]:
    """Return the variables of all metrics, those too that `metrics` of the script's leaves out."""
    found = [*model.metrics]
    for layer in keras_names.layers_within(model):
        found += [
            *keras_names.own_metrics(layer),
            *(one for one in vars(layer).values() if _is_metric(one)),
        ]
    return [variable for metric in found for variable in metric.variables]


def _is_metric(thing: Any) -> bool:
    return isinstance(thing, keras.Metric)


def _of_layers(model: Any) -> list[Any]:
    """Return what layers keep beside weights, such as what they have drawn so far."""
    layers = keras_names.layers_within(model)
    own = [variable for one in layers for variable in keras_names.own_non_trainable(one)]
    return [*own, *states_of_draws(model)]


def states_of_draws(model: Any) -> list[Any]:
    """Return what counts the draws of a model's layers."""
    layers = keras_names.layers_within(model)
    return [one.state for layer in layers for one in keras_names.seed_generators(layer)]
