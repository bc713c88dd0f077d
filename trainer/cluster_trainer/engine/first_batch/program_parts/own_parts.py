"""Finds the script's own parts of a program, which may train differently on several replicas."""

from collections.abc import Iterator
from typing import Any

import keras

from cluster_trainer.engine.running import NOT_A_USERS
from cluster_trainer.private import keras_names

OPAQUE = ("FlaxLayer", "JaxLayer", "Lambda", "TFSMLayer", "TorchModuleWrapper")
"""The names of Keras's layers that call code of other origin."""

ACTIVATIONS = ("activation", "recurrent_activation")
"""Attributes of layers that hold functions of a batch. Keras's own treat each example alone."""

KERASS_ACTIVATIONS = keras.activations.relu.__module__.rpartition(".")[0]

METHODS = ("train_step", "test_step", "compute_loss", "compute_metrics", "call")
"""Methods that a script may replace on a single model object."""


def has_own_parts(model: keras.Model) -> bool:
    """Tell whether a compiled model has a class, a function or an operation of the script's own.

    These parts count, too, because they may compare or add up the examples of a batch:

    - an operation of `keras.ops` between Keras's layers, also in a model within the model;
    - an activation that is not one of Keras's;
    - a layer that calls code of other origin, such as a SavedModel.

    Keras's own parts that do so are in `across_examples`.
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
        yield _is_own(layer) or type(layer).__name__ in OPAQUE
        yield any(callable(one) and _is_own(one) for one in vars(layer).values())
        yield any(map(_is_unknown_activation, (getattr(layer, name, None) for name in ACTIVATIONS)))
        yield any(map(_is_own, _cells(layer)))
        yield not all(isinstance(one, keras.Layer) for one in getattr(layer, "operations", ()))
    for given in keras.tree.flatten(keras_names.user_losses(model)):
        if given is not None and given != "":
            loss = keras.losses.get(given)
            yield _is_own(getattr(loss, "fn", loss))
    optimizer = getattr(model, "optimizer", None)
    yield optimizer is not None and _is_own(getattr(optimizer, "inner_optimizer", optimizer))


def _cells(layer: Any) -> list[Any]:
    """Return the cells of a recurrent layer, which need not be layers."""
    cell = getattr(layer, "cell", None)
    return [] if cell is None else [cell, *getattr(cell, "cells", ())]


def _is_unknown_activation(function: Any) -> bool:
    """Tell whether an activation is not Keras's own, so that it may combine a batch's examples."""
    if function is None or isinstance(function, keras.Layer):
        return False
    return not getattr(function, "__module__", "").startswith(KERASS_ACTIVATIONS)


def _is_own(thing: Any) -> bool:
    """Tell whether the class of an object, or a function itself, is the script's own."""
    is_function = callable(thing) and hasattr(thing, "__qualname__")
    module = getattr(thing if is_function else type(thing), "__module__", "") or ""
    return not module.startswith(NOT_A_USERS)
