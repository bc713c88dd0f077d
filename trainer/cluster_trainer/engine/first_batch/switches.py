"""Finds variables that a step only reads, because a callback may switch the loss by them."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.engine.first_batch.snapshot import Variable, copies_of, variable_of
from cluster_trainer.engine.replicas.state.writes import writes_to
from cluster_trainer.private import keras_names, tensorflow_names

MOST_NUMBERS = 16


def switches(model: keras.Model, traced: Any) -> list[Variable]:
    """Return the small variables that a model's traced step reads, and does not assign or train."""
    trained = {id(one.handle) for one in copies_of(_trained(model))}
    found = []
    for outer, inner in traced.graph.captures:
        variable = variable_of(outer) if id(outer) not in trained else None
        if variable is not None and _is_small(outer) and not writes_to(inner):
            found.append(variable)
    return found


def _trained(model: keras.Model) -> list[Any]:
    """Return the variables that training steps assign; an evaluation only reads them."""
    found: list[Any] = []
    for layer in keras_names.layers_within(model):
        found += keras_names.own_trainable(layer)
        if type(layer).__module__.startswith("keras.") and not isinstance(layer, keras.Model):
            found += keras_names.own_non_trainable(layer)
    return found


def positions(variables: list[Variable]) -> tuple[tuple[Any, ...], ...]:
    """Return the positions of variables: the signs of floats, the values of integers and bools.

    A callback may change the weight of a loss a little in each epoch. This counts as a switch only
    if the weight's sign changes, or if it becomes or stops being zero. Complex values are ignored.
    """
    return tuple(_position(one.read()) for one in variables)


def _position(value: tf.Tensor) -> tuple[Any, ...]:
    if value.dtype.is_complex:
        return ()
    values = np.asarray(value).reshape(-1)
    if value.dtype.is_floating:  # NaN would differ from itself
        values = np.nan_to_num(np.sign(values.astype(np.float64)))
    return tuple(values.tolist())


def _is_small(variable: Any) -> bool:
    (content,) = tensorflow_names.handle_data(variable).shape_and_type
    size = tf.TensorShape(content.shape).num_elements()
    return size is not None and size <= MOST_NUMBERS
