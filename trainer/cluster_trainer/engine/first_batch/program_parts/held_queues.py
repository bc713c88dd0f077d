"""Finds queues in Python or TensorFlow that a script's step uses: each replica fills its own.

A step with such a queue cannot be compared, because it cannot be repeated.
"""

import queue
from collections import deque
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.own_code import functions_of, is_of_script, unwrapped, variables_of
from cluster_trainer.private import keras_names

KINDS = (tf.queue.QueueBase, deque, queue.Queue, queue.SimpleQueue)


def found_in(model: keras.Model) -> list[str]:
    """Return the queues of a compiled model's layers and losses, and of their functions."""
    losses = keras.tree.flatten(keras_names.user_losses(model))
    owners = [*keras_names.layers_within(model), *losses]
    return [*dict.fromkeys(one for owner in owners for one in _of(owner))]


def _of(owner: Any) -> Iterator[str]:
    kind = type(owner)
    held = getattr(owner, "__dict__", {})
    functions = [unwrapped(owner), *functions_of(kind).values()]
    for function in functions:
        if isinstance(function, FunctionType) and is_of_script(function):
            held = held | variables_of(function)
    name = getattr(owner, "__name__", kind.__name__)
    for attribute, value in held.items():
        if isinstance(value, KINDS):
            yield f"{attribute} ({type(value).__name__}) of {name} may hold the rows of a share"
