"""Finds state of a user's callbacks, and of a model, that no checkpoint saves."""

import hashlib
import random
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from inspect import ismethod
from itertools import islice
from types import FunctionType, MemberDescriptorType
from typing import Any

import keras
import numpy as np

from cluster_trainer.callbacks.state import states
from cluster_trainer.callbacks.state.tracked import HOLDERS, VARIABLES, functions_of_steps
from cluster_trainer.engine.functions import runs_eagerly
from cluster_trainer.engine.running import of_a_user
from cluster_trainer.installed import is_installed
from cluster_trainer.own_code import (
    functions_of,
    is_of_script,
    names_in,
    set_by_packages,
    variables_of,
)
from cluster_trainer.private import keras_names
from cluster_trainer.private.any_backend import OF_TRACKING

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
COLLECTIONS = (dict, list, tuple, deque, AbstractSet)
GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
KERAS_OWN = frozenset([*keras_names.SET_BY_KERAS, "epochs_since_last_save"])
MOST_BYTES, MOST_PARTS = 2**20, 10_000
"""The limits for an array, and for the parts of an attribute. Of larger values, only a part is
compared."""
DEPTH = 8
OF_MODEL = "the model"
"""The name under which the model's attributes are noted; a callback's name has a number."""
TRACED = frozenset(
    ["build", "call", "train_step", "test_step", "predict_step", "compute_loss", "compute_metrics"]
)
"""Methods that run while a step is traced: what they assign is not what a callback has set."""
SET_ON_MODELS = frozenset(["history", "stop_training", "stop_evaluating", "stop_predicting"])
"""The attributes that other parts of Keras set on a model."""


class Unkept:
    """The state of users' callbacks that changes during a fit, and that they do not offer to save.

    It consists of attributes, and of variables of the script that a callback's functions use. The
    model's own attributes count, too, because a callback may switch them.

    Args:
        callbacks: the fit's callbacks when it begins or resumes.
        model: the model; None: it is not examined.
    """

    def __init__(self, callbacks: Sequence[Any], model: keras.Model | None = None) -> None:
        self._callbacks, self._model = callbacks, model
        self._before = dict(self._digests())

    def changed(self, before: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        """Return the names of the attributes and variables that have changed, by callback.

        Args:
            before: those that had already changed in an earlier start of the fit.
        """
        found = {name: {*names} for name, names in before.items()}
        for (callback, name), digest in self._digests():
            if self._before.get((callback, name)) != digest:
                found.setdefault(callback, set()).add(name)
        return {callback: sorted(names) for callback, names in found.items()}

    def _digests(self) -> Iterator[tuple[tuple[str, str], bytes]]:
        own = {id(one) for one in of_a_user(self._callbacks)}
        for name, callback in states.named(self._callbacks):
            is_own = id(callback) in own or isinstance(callback, keras.callbacks.LambdaCallback)
            if is_own and not states.has_state(callback):
                for part, value in _state_of_callback(callback).items():
                    yield (name, part), _digest_of(value)
        if self._model:
            for part, value in _state_of_model(self._model).items():
                yield (OF_MODEL, part), _digest_of(value)


def _state_of_callback(callback: Any) -> dict[str, Any]:
    """Return a callback's possible state by name: attributes, and variables its functions use."""
    attributes = dict(getattr(callback, "__dict__", {}))
    found: dict[str, Any] = {}
    for function in [*functions_of(type(callback)).values(), *attributes.values()]:
        found |= _used_by(function)
    for name in KERAS_OWN.union(states.kept_names(callback)):
        attributes.pop(name, None)
    return found | attributes


def _state_of_model(model: keras.Model) -> dict[str, Any]:
    """Return what a script's model and layers may hold besides variables, by name.

    Attributes that Keras assigns are omitted. If steps run eagerly, what their functions use is
    included.
    """
    found: dict[str, Any] = {}
    for layer in keras_names.layers_within(model):
        if layer is not model and not is_of_script(type(layer)):
            continue
        kind: type = type(layer)
        own = functions_of(kind)
        traced = {"build"} if runs_eagerly(model) else TRACED
        assigned = [names_in(one.__code__).stored for name, one in own.items() if name in traced]
        omitted = set_by_packages(kind).union(SET_ON_MODELS, *assigned)
        prefix = "" if layer is model else f"{layer.name}."
        found |= {
            f"{prefix}{name}": value
            for name, value in vars(layer).items()
            if name not in omitted and not name.startswith(OF_TRACKING)
        }
    if runs_eagerly(model):
        for function in functions_of_steps(model).values():
            found |= _used_by(function)
    return found


def _used_by(function: Any) -> dict[str, Any]:
    """Return the globals and closure of a script's function, or a method's object, by name."""
    if isinstance(function, partial):
        held = dict(enumerate(function.args)) | function.keywords
        return {str(name): one for name, one in held.items()} | _used_by(function.func)
    if ismethod(function) and _is_users_own(type(function.__self__)):
        return {type(function.__self__).__name__: function.__self__}
    if isinstance(function, FunctionType) and is_of_script(function):
        assigned = names_in(function.__code__).stored  # a function may only assign a global
        known = function.__globals__
        return {name: known[name] for name in assigned if name in known} | variables_of(function)
    return {}


def _digest_of(value: Any) -> bytes:
    try:
        return ValueDigest().of(value)
    except RuntimeError:  # another thread changes it now
        return b""


class ValueDigest:
    """A digest of a value: numbers, strings, arrays and collections.

    Objects of the script's own classes count by their attributes and items, random generators by
    their state, and other objects by their type alone. Of a long collection, the last items count.
    """

    def __init__(self) -> None:
        self._digest, self._left = hashlib.blake2b(digest_size=16), MOST_PARTS

    def of(self, value: Any) -> bytes:
        """Return the digest of one value."""
        self._add(value, DEPTH)
        return self._digest.digest()

    def _add(self, value: Any, depth: int) -> None:
        self._left -= 1
        self._digest.update(f"{type(value).__name__} ".encode())
        if isinstance(value, PLAIN):
            self._digest.update(repr(value).encode(errors="replace"))
        elif isinstance(value, np.ndarray) and value.dtype != object:
            self._digest.update(f"{value.dtype} {value.shape}".encode())
            most = MOST_BYTES // max(1, value.itemsize)
            self._digest.update(value.flat[:most].tobytes())
        elif isinstance(value, GENERATORS):
            self._digest.update(repr(_state_of(value)).encode())
        elif depth:
            if isinstance(value, COLLECTIONS):
                self._digest.update(f"{len(value)} ".encode())
                self._add_parts(value, depth)
            if _is_users_own(type(value)):
                self._add_parts(_attributes(value), depth)

    def _add_parts(self, value: Any, depth: int) -> None:
        if isinstance(value, AbstractSet):
            if len(value) <= self._left:
                self._digest.update(repr(sorted(map(repr, value))).encode(errors="replace"))
            return
        for part in islice(reversed(value), max(self._left, 0)):
            self._add(part, depth - 1)
            if isinstance(value, dict):
                self._add(value[part], depth - 1)


def _is_users_own(kind: type) -> bool:
    """Tell whether the script defines a class; the state of packages' objects rarely matters."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    is_of_file = kind.__module__ == "__main__" or bool(file and not is_installed(file))
    return is_of_file and not issubclass(kind, HOLDERS + VARIABLES) and not issubclass(kind, type)


def _attributes(value: Any) -> dict[str, Any]:
    """Return an object's attributes, including those in `__slots__`."""
    slots = [
        name
        for kind in type(value).__mro__
        for name, one in vars(kind).items()
        if isinstance(one, MemberDescriptorType)
    ]
    return {
        **{name: getattr(value, name, None) for name in slots},
        **getattr(value, "__dict__", {}),
    }


def _state_of(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.get_state()
