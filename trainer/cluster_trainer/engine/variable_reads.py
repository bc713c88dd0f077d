"""Observes reads of a model's variables between the fits of a script.

An evaluation, a prediction, `get_weights`, `save` and a call of a layer all read values of Keras's
variables, or call functions of a model that were traced before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Told:
    """The functions to call with each variable that is read or assigned; None: no listener."""

    read: Callable[[Any], None] | None = None
    assigned: Callable[[Any], None] | None = None


def listen(read: Callable[[Any], None], assigned: Callable[[Any], None]) -> None:
    """Call functions with each variable that is read or assigned."""
    _Told.read, _Told.assigned = read, assigned


def stop_listening() -> None:
    """Stop calling the listener."""
    _Told.read = _Told.assigned = None


def note(model: Any) -> None:
    """Report all variables of a model as read: functions that were traced before report none."""
    if _Told.read is not None:
        for variable in model.variables:
            _Told.read(variable)


@contextmanager
def unheard() -> Iterator[None]:
    """Do not report reads within the context; the relevant ones were noted before."""
    before, _Told.read = _Told.read, None
    try:
        yield
    finally:
        _Told.read = before


def telling_value(value: property) -> property:
    """Return a variable's `value` that reports each read."""
    own: Any = value.fget

    def read(self: Any) -> Any:
        if _Told.read is not None:
            _Told.read(self)
        return own(self)

    return property(read, doc=value.__doc__)


def telling_assign(assign: Callable[..., Any]) -> Callable[..., Any]:
    """Return a variable's `assign` that reports each call."""

    def assign_to(self: Any, value: Any) -> Any:
        if _Told.assigned is not None:
            _Told.assigned(self)
        return assign(self, value)

    return assign_to
