"""Handles a script's own learning-rate schedules that have state, such as a count of their calls.

Keras calls a schedule once for each step. Other calls, such as those that show the learning rate,
must not change its state: they happen at any time, and on the chief more often.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.engine.building.unbuilt import of_objects
from cluster_trainer.own_code import is_of_script
from cluster_trainer.private import keras_names

PLAIN = (bool, int, float, np.generic)
log = logging.getLogger("trainer")


def of_script(model: Any) -> list[Any]:
    """Return the schedules of a script's own class in a model's optimizers.

    Only a model without an `optimizer` is searched for others, because that takes long.
    """
    only = getattr(model, "optimizer", None)
    optimizers = [only] if only is not None else keras_names.optimizers_of(model)
    found = map(keras_names.schedule_of, optimizers)
    return [one for one in found if hasattr(one, "__dict__") and is_of_script(type(one))]


@contextmanager
def unchanged(model: Any) -> Iterator[None]:
    """Restore the attributes and the variables of a script's own schedules after the context."""
    schedules = of_script(model)
    back = [*of_objects(schedules)]
    variables = [one for schedule in schedules for one in _variables(schedule)]
    before = [np.array(one.numpy()) for one in variables]
    try:
        yield
    finally:
        for put_back in back:
            put_back()
        for one, value in zip(variables, before, strict=True):
            if not np.array_equal(one.numpy(), value, equal_nan=value.dtype.kind in "fc"):
                one.assign(value)


@contextmanager
def counting_told(model: Any) -> Iterator[None]:
    """Warn if a schedule changes numbers of its own while a step is traced in the context.

    The compiled step calls the schedule no more. Several replicas may trace a step more often than
    one device does, and then find other numbers.
    """
    schedules = of_script(model)
    before = [*map(_numbers, schedules)]
    yield
    for one, numbers in zip(schedules, before, strict=True):
        now = _numbers(one)
        if names := sorted(name for name in now if now[name] != numbers.get(name)):
            _warn(type(one).__name__, ", ".join(names))


def _variables(schedule: Any) -> list[Any]:
    leaves = keras.tree.flatten([*vars(schedule).values()])
    return [one for one in leaves if isinstance(one, (tf.Variable, keras.Variable))]


def _numbers(schedule: Any) -> dict[str, Any]:
    return {name: one for name, one in vars(schedule).items() if isinstance(one, PLAIN)}


@cache
def _warn(kind: str, names: str) -> None:
    log.warning(
        "the learning-rate schedule %s changes its own attributes when it is called (%s). A "
        "compiled step calls it only when it is traced, which several workers may do more often "
        "than one: their learning rates may differ. Compute the rate from `step`, or count in a "
        "tf.Variable",
        kind,
        names,
    )
