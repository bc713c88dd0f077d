"""Saves the state that a step may change, to restore it after the first batch was compared."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives import over_ring
from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.building.unbuilt import of_layers, of_objects
from cluster_trainer.engine.functions import nodes_within
from cluster_trainer.engine.replicas import statistics
from cluster_trainer.engine.replicas.random_layers import global_seed
from cluster_trainer.engine.replicas.state import queues
from cluster_trainer.engine.replicas.step_context import name_of, tensorflow_variable
from cluster_trainer.private import keras_names, tensorflow_names

# Operations whose effects cannot be undone.
CALLS = ("PyFunc", "EagerPyFunc")  # PyFuncStateless declares that it changes nothing
USED_UP = ("IteratorGetNext", "LookupTableInsertV2", "LookupTableImportV2", "QueueDequeueV2")


class Variable(NamedTuple):
    """The resource of a variable, or of one replica's copy of it."""

    handle: Any
    dtype: tf.DType

    def read(self) -> tf.Tensor:
        """Return the variable's value; later assignments do not change the result."""
        return tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype)

    def write(self, value: tf.Tensor) -> None:
        """Assign a value."""
        tf.raw_ops.AssignVariableOp(resource=self.handle, value=value)


class Snapshot:
    """A snapshot of variables, and of the attributes of a model, its layers, metrics and losses.

    It covers all variables that a step may change, and the attributes with the contents of lists,
    dictionaries and sets. A value is copied only when its variable is assigned.

    Args:
        model: the compiled model.
        traced: a trace of the step; None: `note` gets the variables that the model does not track.
    """

    def __init__(self, model: keras.Model, traced: Any) -> None:
        known = {id(one.handle): one for one in copies_of(_of_model(model))}
        for one in traced.graph.external_captures if traced else ():
            if (variable := variable_of(one)) is not None:
                known[id(one)] = variable
        self._before = {key: (one, one.read()) for key, one in known.items()}
        compiled = keras.tree.flatten(keras_names.user_losses(model))
        compiled += keras_names.user_metrics(model)
        others = [*statistics.metrics_within(model), *compiled]
        self._attributes = [
            *of_layers(keras_names.layers_within(model)),
            *of_objects(one for one in others if hasattr(one, "__dict__")),
        ]
        local = Replicas.of(model.distribute_strategy).local
        own = _own_state(model, known)
        self._own = {name: copies for name, copies in own.items() if len(copies) == local}

    def note(self, assigned: Mapping[int, tuple[Any, tf.Tensor | None]]) -> None:
        """Take the earlier values of variables that an eager step has assigned, by handle."""
        for key, (one, before) in assigned.items():
            if before is not None:
                self._before.setdefault(key, (Variable(one.handle, one.dtype), before))

    def restore(self) -> None:
        """Restore the variables, bit for bit, and the attributes."""
        for variable, value in self._before.values():
            variable.write(value)
        for put_back in self._attributes:
            put_back()

    def make_finite(self) -> None:
        """Replace values that are not finite, such as weights after a step whose loss was NaN.

        The new values are small and positive, and the same on all workers. `restore` restores the
        earlier ones.
        """
        draws = np.random.default_rng(0)
        for variable, value in self._before.values():
            if not variable.dtype.is_floating or tf.reduce_all(tf.math.is_finite(value)):
                continue
            drawn = draws.uniform(0.5, 1.5, value.shape) / max(1, np.prod(value.shape[:-1]))
            is_finite = tf.math.is_finite(value)
            variable.write(tf.where(is_finite, value, tf.cast(drawn, variable.dtype)))

    def own_values(self) -> dict[str, list[np.ndarray]]:
        """Return the values of the program's own state on all local replicas, by name."""
        return {name: [one.read().numpy() for one in copies] for name, copies in self._own.items()}

    def assign_own(self, name: str, value: np.ndarray) -> None:
        """Assign a value to a part of the program's own state, on all local replicas."""
        for one in self._own[name]:
            one.write(tf.convert_to_tensor(value, one.dtype))


def uses_something_up(traced: Any, known_iterators: int) -> bool:
    """Tell whether a traced step reads from an iterator or a queue of its own, or fills a table.

    `known_iterators` is the number of reads from the steps' own iterator.
    """
    captured = traced.graph.external_captures
    if all(one.dtype != tf.resource or variable_of(one) is not None for one in captured):
        return False
    return sum(node.op in USED_UP for node in nodes_within(traced.graph)) > known_iterators


def calls_python(traced: Any) -> bool:
    """Tell whether a traced step calls a Python function of the script's own."""
    own = [node for node in nodes_within(traced.graph) if node.op in CALLS]
    return any(over_ring.SUM not in node.name for node in own)


def variable_of(captured: Any) -> Variable | None:
    """Return the variable of a captured resource; None: it is not a variable."""
    data = tensorflow_names.handle_data(captured) if captured.dtype == tf.resource else None
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    return Variable(captured, tf.as_dtype(data.shape_and_type[0].dtype))


def _of_model(model: Any) -> list[Any]:
    rates = map(keras_names.rate_variable, keras_names.optimizers_of(model))
    found = [*model.variables, *_not_own(model), *(one for one in rates if one is not None)]
    for layer in keras_names.layers_within(model):
        found += keras_names.own_non_trainable(layer)
        found += [one for one in vars(layer).values() if isinstance(one, tf.Variable)]
    return found


def _not_own(model: Any) -> list[Any]:
    """Return the variables of metrics, random draws and optimizers, except learning rates.

    A step does not assign these itself, but it may assign a learning rate.
    """
    found = [*global_seed()]
    for layer in keras_names.layers_within(model):
        found += [one.state for one in keras_names.seed_generators(layer)]
    for optimizer in keras_names.optimizers_of(model):
        rate = keras_names.rate_variable(optimizer)
        found += [one for one in optimizer.variables if one is not rate]
    return found + statistics.of_metrics(model)


def copies_of(variables: Iterable[Any]) -> list[Variable]:
    """Return the resources of Keras's or TensorFlow's variables: one for each local replica."""
    return [Variable(part.handle, part.dtype) for one in variables for part in _parts(one)]


def _parts(variable: Any) -> Any:
    """Return the local replicas' copies of one of Keras's or TensorFlow's variables."""
    value = tensorflow_variable(variable)
    return value.values if isinstance(value, tensorflow_names.DistributedVariable) else [value]


def _own_state(model: Any, known: Mapping[int, Variable]) -> dict[str, list[Variable]]:
    """Return the floating-point variables that a step may assign without an optimizer, by name."""
    left_out = {id(one.handle) for one in copies_of(_not_own(model))}
    own: dict[str, list[Variable]] = {}
    for variable in _of_model(model):
        copies = copies_of([variable])
        is_queue = any(map(queues.is_queue, _parts(variable)))  # only a trace can gather its rows
        is_new = not any(id(one.handle) in left_out for one in copies)
        if is_new and not is_queue and copies[0].dtype.is_floating:
            name = name_of(variable)
            same = sum(one.partition(" (")[0] == name for one in own)
            own[f"{name} ({same + 1})" if same else name] = copies
        if is_new and (is_queue or copies[0].dtype.is_floating):
            left_out |= {id(one.handle) for one in copies}
    untracked = [one for key, one in known.items() if key not in left_out]
    for number, one in enumerate(one for one in untracked if one.dtype.is_floating):
        own[f"variable {number + 1} that the model does not track"] = [one]
    return own
