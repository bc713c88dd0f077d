"""Finds the names that a script's own functions read and assign, and the variables behind them."""

import dis
import inspect
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType, MethodType
from typing import Any

from cluster_trainer.installed import is_installed

OPERATIONS = {
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME"), "LOAD_GLOBAL"),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), "LOAD_ATTR"),
    **dict.fromkeys(("STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF"), "STORE"),
}


@dataclass(frozen=True)
class Names:
    """The names in a function's code, and in the functions within it.

    Attributes:
        globals: the globals that it reads.
        attributes: the attributes that it reads, of any object.
        stored: the attributes, globals and variables of outer functions that it assigns.
    """

    globals: frozenset[str]
    attributes: frozenset[str]
    stored: frozenset[str]


@cache
def names_in(code: CodeType) -> Names:
    """Return the names in some code."""
    kinds: dict[str, set[str]] = {"LOAD_GLOBAL": set(), "LOAD_ATTR": set(), "STORE": set()}
    waiting = [code]
    while waiting:
        one = waiting.pop()
        waiting += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
        for instruction in dis.get_instructions(one):
            if kind := OPERATIONS.get(instruction.opname):
                kinds[kind].add(instruction.argval)
    return Names(*(frozenset(names) for names in kinds.values()))


def is_of_script(thing: Any) -> bool:
    """Tell whether a script has defined a class or a function."""
    if isinstance(thing, type) and thing.__module__ == "builtins":
        return False
    try:
        return not is_installed(inspect.getfile(thing))
    except (TypeError, OSError):  # of `python -c`, or of a notebook's cell
        return True


def functions_of(kind: type) -> dict[str, FunctionType]:
    """Return the functions of a script's class and its bases, without `__init__`."""
    found: dict[str, FunctionType] = {}
    for one in reversed(kind.__mro__):
        if is_of_script(one):
            found |= functions_in(one)
    found.pop("__init__", None)
    return found


def functions_in(kind: type) -> dict[str, FunctionType]:
    """Return the functions that a class itself defines, with those of its properties."""
    values = {
        name: unwrapped(getattr(one, "__func__", getattr(one, "fget", one)))
        for name, one in vars(kind).items()
    }
    return {name: one for name, one in values.items() if isinstance(one, FunctionType)}


def unwrapped(function: Any) -> Any:
    """Return the function beneath `tf.function` and what packages, such as this one, wrap it in.

    A method that `tf.function` decorates is bound to its object.
    """
    while _is_wrapping(function):
        function = function.__wrapped__
    return _bound_to_its_object(function) if inspect.ismethod(function) else function


def _bound_to_its_object(method: Any) -> Any:
    """Return a method of an object, also if TensorFlow has bound it to a weak reference."""
    bound_to = method.__self__
    if not (_is_of_tensorflow(type(bound_to)) and hasattr(bound_to, "target_class")):
        return method
    target = bound_to.target
    return method.__func__ if target is None else MethodType(method.__func__, target)


def _is_wrapping(function: Any) -> bool:
    if isinstance(function, FunctionType):  # a script's own decorator may read numbers, too
        return hasattr(function, "__wrapped__") and not is_of_script(function)
    return _is_of_tensorflow(type(function)) and hasattr(function, "python_function")


def _is_of_tensorflow(kind: type) -> bool:
    return kind.__module__.startswith("tensorflow.")


@cache
def set_by_packages(kind: type) -> frozenset[str]:
    """Return the attributes that the functions of a class's installed bases assign."""
    bases = [one for one in kind.__mro__ if not is_of_script(one)]
    functions = [one for base in bases for one in functions_in(base).values()]
    return frozenset(name for one in functions for name in names_in(one.__code__).stored)


def variables_of(function: FunctionType) -> dict[str, Any]:
    """Return the globals that a function reads, and what it closes over, by name."""
    globals_of = function.__globals__
    names = names_in(function.__code__).globals
    found = {name: globals_of[name] for name in names if name in globals_of}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it is not there yet
            continue
    return found
