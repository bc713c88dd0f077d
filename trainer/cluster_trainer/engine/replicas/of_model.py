"""Keeps the engine's data about each model, for the life of the model."""

import inspect
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import keras


@dataclass
class OfModel:
    """The data about one model; nothing here may hold the model itself.

    Attributes:
        has_automatic_jit: whether Keras decides on XLA (`jit_compile="auto"`). The engine then uses
            XLA on one device only.
        is_alike: whether the workers were given the same values for a user's own loop.
        was_alike: whether the workers had the same values at any moment until now.
        functions: functions by name, each with the `id`s of the variables that it computes with.
        totals: the metrics' variables, with their sums over all replicas after the last steps.
        left: the metrics' variables that have these sums on each worker; see left_totals.py.
    """

    has_automatic_jit: bool = False
    is_alike: bool = False
    was_alike: bool = False
    functions: dict[str, tuple[list[int], Callable[..., Any]]] = field(default_factory=dict)
    totals: list[tuple[Any, Any]] = field(default_factory=list)
    left: list[Any] = field(default_factory=list)

    def function(
        self, name: str, variables: Sequence[Any], make: Callable[[], Callable[..., Any]]
    ) -> Callable[..., Any]:
        """Return the function of this name, and `make` it unless it exists for these variables.

        The function is kept, because a new trace would need new collectives on all workers.
        """
        known = [id(one) for one in variables]
        if name not in self.functions or self.functions[name][0] != known:
            self.functions[name] = known, make()
        return self.functions[name][1]


_of_models: MutableMapping[keras.Model, OfModel] = WeakKeyDictionary()


def noting_jit(compile_model: Callable[..., None]) -> Callable[..., None]:
    """Return a model's `compile` that notes whether Keras decides on XLA."""
    signature = inspect.signature(compile_model)

    @wraps(compile_model)
    def compile_and_note(self: Any, *arguments: Any, **keywords: Any) -> None:
        compile_model(self, *arguments, **keywords)
        given = signature.bind(self, *arguments, **keywords).arguments
        of(self).has_automatic_jit = given.get("jit_compile", "auto") == "auto"

    return compile_and_note


def of_all() -> list[OfModel]:
    """Return the data about all models of the process."""
    return [*_of_models.values()]


def of(model: keras.Model) -> OfModel:
    """Return the data about a model."""
    return _of_models.setdefault(model, OfModel())
