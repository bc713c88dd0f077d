"""The numbers that a script's losses, metrics and callbacks read, beside their configuration."""

import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from numbers import Number
from typing import Any

import keras
import numpy as np

from cluster_trainer.engine.running import flat
from cluster_trainer.installed import is_installed

STEERING: Mapping[type, tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: (
        *("monitor", "patience", "min_delta", "baseline", "start_from_epoch"),
        "restore_best_weights",
    ),
    keras.callbacks.ReduceLROnPlateau: (
        *("monitor", "factor", "patience", "min_delta", "cooldown", "min_lr"),
    ),
    keras.callbacks.LearningRateScheduler: ("schedule",),
}
"""The callbacks of Keras that decide how long and how fast a fit trains, and their arguments."""


def of_callbacks(given: Any) -> list[Any]:
    """Return the name and the arguments of each callback that steers a fit."""
    found = []
    for one in flat(given):
        names = next((names for kind, names in STEERING.items() if isinstance(one, kind)), None)
        if names is not None:
            told = {name: _told(getattr(one, name, None)) for name in names}
            found.append([type(one).__name__, told])
    return found


def of_parts(given: Any) -> list[Any]:
    """Return the numbers that the losses or metrics of `compile` read, in their order."""
    return [numbers for one in _leaves(given) if (numbers := of_one(one))]


def of_one(thing: Any) -> dict[str, Any]:
    """Return the numbers of a function's closure and globals, or of an object's attributes."""
    if isinstance(thing, partial):
        given: dict[Any, Any] = {**dict(enumerate(thing.args)), **thing.keywords}
        return {**_numbers(given), **of_one(thing.func)}
    if inspect.ismethod(thing):
        return {**of_one(thing.__self__), **of_one(thing.__func__)}
    if inspect.isfunction(thing):
        return _numbers(_names_read(thing)) if _is_of_script(thing) else {}
    if thing is None or not _is_of_script(type(thing)):
        return {}
    return _numbers(getattr(thing, "__dict__", {}))


def _names_read(function: Any) -> Mapping[str, Any]:
    try:
        read = inspect.getclosurevars(function)
    except ValueError:  # something that it closes over is not there yet
        return {}
    return {**read.globals, **read.nonlocals}


def _is_of_script(thing: Any) -> bool:
    try:
        return not is_installed(inspect.getfile(thing))
    except (TypeError, OSError):  # of `python -c`, or of a notebook's cell
        return True


def _leaves(given: Any) -> Iterator[Any]:
    if isinstance(given, Mapping):
        given = [*given.values()]
    if isinstance(given, (list, tuple)):
        for one in given:
            yield from _leaves(one)
    else:
        yield given


def _told(value: Any) -> Any:
    if callable(value):
        return [getattr(value, "__name__", type(value).__name__), of_one(value)]
    # EarlyStopping changes the sign itself.
    return abs(value) if isinstance(value, float) else value


def _numbers(named: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the numbers among some values; what begins with `_` is Keras's or private."""
    return {
        str(name): value.item() if isinstance(value, np.generic) else value
        for name, value in named.items()
        if isinstance(value, (Number, np.bool_)) and not str(name).startswith("_")
    }
