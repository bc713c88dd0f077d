"""Finds parts of a program that may train differently on several replicas.

These are the script's own parts, and the few of Keras's that compare or add up a batch's examples.
"""

from collections.abc import Iterator
from typing import Any

import keras

from cluster_trainer.engine.running import NOT_A_USERS
from cluster_trainer.private import keras_names

ACROSS_EXAMPLES = ("circle", "dice", "tversky")
"""The function names of Keras's own losses that are not a mean of the examples' losses."""

ACTIVATIONS = ("activation", "recurrent_activation")
"""Attributes of layers that hold functions of a batch. Keras's own treat each example alone."""

KERASS_ACTIVATIONS = keras.activations.relu.__module__.rpartition(".")[0]

AXES = ("axis", "axes", "attention_axes")
"""Attributes of layers that hold the axes over which, or along which, the layer computes."""

METHODS = ("train_step", "test_step", "compute_loss", "compute_metrics", "call")
"""Methods that a script may replace on a single model object."""


def has_own_parts(model: keras.Model) -> bool:
    """Tell whether a compiled model has a class, a function or an operation of the script's own.

    These parts count, too, because they may compare or add up the examples of a batch:

    - an operation of `keras.ops` between Keras's layers;
    - an activation that is not one of Keras's;
    - a layer or a loss of Keras's that computes along the batch's axis;
    - the losses in ACROSS_EXAMPLES.
    """
    return any(_own_parts(model)) or bool(own_metrics(model))


def own_metrics(model: keras.Model) -> set[str]:
    """Return the names of a compiled model's metrics that are the script's own.

    They do not affect training, but callbacks may act on them.
    """
    given = [one for one in keras_names.user_metrics(model) if not isinstance(one, str)]
    own = [one for one in given if _is_own(keras_names.function_of_metric(one))]
    return {str(getattr(one, "name", getattr(one, "__name__", ""))) for one in own if one}


def _own_parts(model: Any) -> Iterator[bool]:
    yield any(name in vars(model) for name in METHODS)
    for layer in keras_names.layers_within(model):
        yield _is_own(layer) or isinstance(layer, keras.layers.Lambda)
        yield any(callable(one) and _is_own(one) for one in vars(layer).values())
        yield any(map(_is_unknown_activation, (getattr(layer, name, None) for name in ACTIVATIONS)))
        yield _is_along_batch(layer)
    for operation in getattr(model, "operations", ()):
        yield not isinstance(operation, keras.Layer)
    for given in keras.tree.flatten(keras_names.user_losses(model)):
        if given is not None and given != "":
            loss = keras.losses.get(given)
            yield _has_axis_of_batch(keras_names.options_of_loss(loss).get("axis", -1), None)
            loss = getattr(loss, "fn", loss)
            yield _is_own(loss) or getattr(loss, "__name__", "") in ACROSS_EXAMPLES
    optimizer = getattr(model, "optimizer", None)
    yield optimizer is not None and _is_own(getattr(optimizer, "inner_optimizer", optimizer))


def _is_unknown_activation(function: Any) -> bool:
    """Tell whether an activation is not Keras's own, so that it may combine a batch's examples."""
    if function is None or isinstance(function, keras.Layer):
        return False
    return not getattr(function, "__module__", "").startswith(KERASS_ACTIVATIONS)


def _is_along_batch(layer: Any) -> bool:
    """Tell whether a layer of Keras's computes over the axis of the examples, or may do so."""
    axes = [getattr(layer, name, None) for name in AXES]
    return any(_has_axis_of_batch(one, _rank_of_input(layer)) for one in axes)


def _has_axis_of_batch(axes: Any, rank: int | None) -> bool:
    """Tell whether one of the axes may be the first of a tensor of `rank`; None: unknown rank."""
    known = [axis for axis in keras.tree.flatten(axes) if isinstance(axis, int)]
    if rank is None:
        return any(axis == 0 or axis < -1 for axis in known)
    return any(axis % rank == 0 for axis in known)


def _rank_of_input(layer: Any) -> int | None:
    try:
        first, *_ = keras.tree.flatten(layer.input)
    except (AttributeError, ValueError):  # the layer has no input, or several
        return None
    return len(first.shape) or None


def _is_own(thing: Any) -> bool:
    """Tell whether the class of an object, or a function itself, is the script's own."""
    is_function = callable(thing) and hasattr(thing, "__qualname__")
    module = getattr(thing if is_function else type(thing), "__module__", "") or ""
    return not module.startswith(NOT_A_USERS)
