"""Variables that a step creates when it is traced: an optimizer's, those of metrics.

TensorFlow traces a function again if its first trace has created any, and a trace takes seconds
where a model has many layers. What is created outside of the trace is nothing that it knows of.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

import tensorflow as tf


def lifting(traced: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the same when it is traced, and creates no variable of its own.

    In its first trace, that is: TensorFlow refuses variables that are created in a later one.

    Args:
        traced: what is given to `tf.function`.
    """
    earlier: list[None] = []

    @wraps(traced)
    def trace(*arguments: Any) -> Any:
        creates = nullcontext() if earlier else tf.variable_creator_scope(_create_outside)
        earlier.append(None)
        with creates:
            return traced(*arguments)

    return trace


def _create_outside(create: Callable[..., tf.Variable], **given: Any) -> tf.Variable:
    """Create a variable outside of the trace, unless its value is computed within it.

    Args:
        create: creates it within the trace.
        given: what it is created with, as `tf.Variable` takes it.
    """
    value = given["initial_value"]
    # A strategy has rules of its own for where its variables are created.
    if tf.distribute.has_strategy() or not callable(value):
        return create(**given)
    try:
        with tf.init_scope():
            value = value()
    except Exception:  # noqa: BLE001  it may be computed within the trace: TensorFlow's way, then
        return create(**given)
    if tf.is_symbolic_tensor(value):
        return create(**given)
    outside = {"initial_value": value, "experimental_enable_variable_lifting": False}
    with tf.init_scope():
        return create(**given | outside)
