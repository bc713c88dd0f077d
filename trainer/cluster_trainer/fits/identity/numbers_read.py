"""Finds the numbers that a script's losses, metrics and callbacks read besides their arguments."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from numbers import Number
from types import CodeType, FunctionType
from typing import Any

import keras
import numpy as np

from cluster_trainer.fits.identity.place import LIKE_A_TIME
from cluster_trainer.own_code import (
    functions_of,
    is_of_script,
    names_in,
    set_by_packages,
    unwrapped,
    variables_of,
)

STEERING: Mapping[type, tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: (
        *("monitor", "mode", "patience", "min_delta", "baseline", "start_from_epoch"),
        "restore_best_weights",
    ),
    keras.callbacks.ReduceLROnPlateau: (
        *("monitor", "mode", "factor", "patience", "min_delta", "cooldown", "min_lr"),
    ),
    keras.callbacks.LearningRateScheduler: ("schedule",),
}
"""Keras's callbacks that decide the length and the learning rate of a fit, and their arguments."""
MOST_ITEMS = 1_000
"""The largest size of lists and arrays of numbers that are compared."""


def of_callbacks(given: Any) -> list[Any]:
    """Return the name and the arguments of each callback that steers a fit."""
    found = []
    given = given.callbacks if isinstance(given, keras.callbacks.CallbackList) else given
    for one in keras.tree.flatten(given):
        names = next((names for kind, names in STEERING.items() if isinstance(one, kind)), None)
        if names is not None:
            told = {name: _told(name, getattr(one, name, None)) for name in names}
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
    thing = unwrapped(thing)
    if inspect.ismethod(thing):
        return {**_of_object(thing.__self__, [thing.__func__]), **of_one(thing.__func__)}
    if isinstance(thing, FunctionType):
        decorated = of_one(thing.__wrapped__) if hasattr(thing, "__wrapped__") else {}
        return decorated | _numbers_of_function(thing) if is_of_script(thing) else {}
    if thing is None or not is_of_script(type(thing)):
        return {}
    return _of_object(thing, functions_of(type(thing)).values())


def _of_object(thing: Any, functions: Iterable[Callable[..., Any]]) -> dict[str, Any]:
    """Return the numbers that functions of an object read: attributes, globals and closures.

    Two kinds of attributes are omitted: those that installed base classes set, which are in the
    configuration if they matter; and those that the object's functions assign, which are state.
    """
    kind = thing if isinstance(thing, type) else type(thing)
    own = functions_of(kind)
    waiting, seen = [*functions], set()
    read: set[str] = set()
    outside: dict[str, Any] = {}
    while waiting:
        function = waiting.pop()
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType) and code not in seen:
            seen.add(code)
            names = names_in(code).attributes
            read |= names
            waiting += [own[name] for name in names & own.keys()]
            waiting += [unwrapped(getattr(function, "__wrapped__", None))]
            if isinstance(function, FunctionType):
                outside |= _numbers_of_function(function)
    read -= set_by_packages(kind)
    for function in own.values():
        read -= names_in(function.__code__).stored
    attributes = getattr(thing, "__dict__", {})
    return outside | _numbers({name: one for name, one in attributes.items() if name in read})


def _numbers_of_function(function: FunctionType) -> dict[str, Any]:
    """Return the numbers that a function reads, without those that it assigns."""
    stored = names_in(function.__code__).stored
    read = variables_of(function).items()
    return _numbers({name: one for name, one in read if name not in stored})


def _leaves(given: Any) -> Iterator[Any]:
    if isinstance(given, Mapping):
        given = [*given.values()]
    if isinstance(given, (list, tuple)):
        for one in given:
            yield from _leaves(one)
    else:
        yield given


def _told(name: str, value: Any) -> Any:
    if callable(value):
        return [getattr(value, "__name__", type(value).__name__), of_one(value)]
    # EarlyStopping changes the sign itself.
    return abs(value) if name == "min_delta" else value


def _numbers(named: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the numbers among some values, except those with private names, such as `_x`."""
    told = {str(name): _plain(value) for name, value in named.items()}
    found = {name: one for name, one in sorted(told.items()) if not name.startswith("_")}
    return {name: one for name, one in found.items() if one is not None and _lasts(one)}


def _plain(value: Any) -> Any:
    """Return a number, or a small list or array of numbers; None for anything else."""
    tf = sys.modules.get("tensorflow")  # the image with JAX has none
    if tf and isinstance(value, tf.Tensor) and hasattr(value, "numpy"):
        value = value.numpy() if value.shape.num_elements() <= MOST_ITEMS else None
    if isinstance(value, (np.generic, np.ndarray)):
        is_number = value.dtype.kind in "biufc" and value.size <= MOST_ITEMS
        return value.tolist() if is_number else None
    if isinstance(value, (list, tuple)) and 0 < len(value) <= MOST_ITEMS:
        items = [_plain(one) for one in value if isinstance(one, (Number, np.generic))]
        return items if len(items) == len(value) else None
    return value if isinstance(value, Number) else None


def _lasts(value: Any) -> bool:
    """Tell whether numbers are likely the same at each start: none is as large as a time."""
    try:
        sizes = np.abs(np.asarray(value, np.complex128))
    except OverflowError:
        return False
    return not (np.isfinite(sizes) & (sizes >= LIKE_A_TIME)).any()
