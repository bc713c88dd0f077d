"""Parts of a program that are not Keras's: only these may train differently on several replicas."""

from collections.abc import Iterator
from typing import Any

import keras

from cluster_trainer.engine.running import NOT_A_USERS
from cluster_trainer.private import keras_names

ACROSS_EXAMPLES = ("circle", "dice", "tversky")
"""Keras's own losses that are not a mean of the examples' losses, by their functions' names."""

METHODS = ("train_step", "test_step", "compute_loss", "compute_metrics", "call")
"""Of a model, which a script may replace on a single one."""


def has_own_parts(model: keras.Model) -> bool:
    """Tell whether a compiled model has a class, a function or an operation of the script's own.

    An operation of `keras.ops` between Keras's layers counts, because it may contract the batch. So
    do Keras's few losses that compare or add up examples, and metrics of the script's own.
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
    for operation in getattr(model, "operations", ()):
        yield not isinstance(operation, keras.Layer)
    for given in keras.tree.flatten(keras_names.user_losses(model)):
        if given is not None and given != "":
            loss = keras.losses.get(given)
            loss = getattr(loss, "fn", loss)
            yield _is_own(loss) or getattr(loss, "__name__", "") in ACROSS_EXAMPLES
    optimizer = getattr(model, "optimizer", None)
    yield optimizer is not None and _is_own(getattr(optimizer, "inner_optimizer", optimizer))


def _is_own(thing: Any) -> bool:
    """Tell whether the class of an object, or a function itself, is the script's."""
    is_function = callable(thing) and hasattr(thing, "__qualname__")
    module = getattr(thing if is_function else type(thing), "__module__", "") or ""
    return not module.startswith(NOT_A_USERS)
