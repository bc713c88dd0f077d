"""Describes the functions among a call's values, so that calls with different ones are told apart.

A script may train in one line with several pipelines or losses of which only a function differs:
`for augment in (weak, strong)`.
"""

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from cluster_trainer.own_code import is_of_script, names_in
from cluster_trainer.same_code.script_text import digest_of

DEEPEST, LONGEST = 4, 100
"""Containers are searched and compared to this depth, and up to this number of values."""
LIBRARIES = ("keras", "tensorflow")
"""Objects of these packages' classes, and of subclasses, change while a fit runs."""
PLAIN = (bool, int, float, complex, str, bytes, type(None))
WITHIN = "<"
"""The qualified name of a lambda contains `<lambda>`, of a function within another `<locals>`."""


@dataclass
class Functions:
    """The functions within a value.

    Attributes:
        names: their qualified names, and the names of classes and of a dataset's steps.
        values: plain values that they close over, have as defaults, or get from a `partial`, and
            digests of the code of lambdas and of functions within functions, whose names are not
            unique. The code of other functions may be edited.
        is_known: whether nothing within the value can differ unseen: no iterator, no method of an
            object, no object that can be called.
    """

    names: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    is_known: bool = True


def functions_within(value: Any, *, with_objects: bool = False) -> Functions:
    """Return the functions within a value: itself, those of a container, a `tf.data.Dataset`.

    Args:
        value: the value of a variable.
        with_objects: whether attributes of the script's own objects are searched, too.
    """
    found = Functions()
    _add(found, value, 0, with_objects=with_objects)
    return found


def _add(found: Functions, value: Any, depth: int, *, with_objects: bool) -> None:
    if isinstance(value, PLAIN) or depth > DEEPEST:
        return
    if isinstance(value, FunctionType):
        _add_function(found, value, depth)
    elif isinstance(value, partial):
        _add_held(found, [value.func, *value.args, *value.keywords.values()], depth)
        found.names += value.keywords
    elif isinstance(value, MethodType):
        found.is_known &= isinstance(value.__self__, (type, ModuleType))
        found.names.append(_name_of(value))
    elif isinstance(value, type) or inspect.isroutine(value):
        found.names.append(_name_of(value))
    else:
        found.is_known &= not (hasattr(type(value), "__next__") or callable(value))
        for part in islice(_parts(found, value, with_objects=with_objects), LONGEST):
            _add(found, part, depth + 1, with_objects=with_objects)


def _add_function(found: Functions, function: FunctionType, depth: int) -> None:
    found.names.append(_name_of(function))
    if not is_of_script(function):
        return
    code = function.__code__
    if WITHIN in code.co_qualname:
        found.values.append(int(digest_of(repr(_told(code))), 16))  # a text may look like a date
    assigned = names_in(code).stored  # such as a counter
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    held = [_content(cell) for name, cell in cells if name not in assigned]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    _add_held(found, [*held, *defaults], depth)


def _add_held(found: Functions, held: Iterable[Any], depth: int) -> None:
    """Add the values that a function holds, except lists and objects, which may be its state."""
    for one in held:
        if isinstance(one, PLAIN):
            found.values.append(one)
        elif isinstance(one, tuple) and depth < DEEPEST:
            _add_held(found, one, depth + 1)
        elif inspect.isroutine(one) or isinstance(one, (type, partial)):
            _add(found, one, depth + 1, with_objects=False)


def _parts(found: Functions, value: Any, *, with_objects: bool) -> Iterator[Any]:
    """Yield the parts of a container, a dataset, or an object of a script's own class."""
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple)):
        yield from value
    elif steps := _steps_of_dataset(value):
        for step, functions in steps:
            found.names.append(step)
            yield from functions
    elif with_objects and _is_of_scripts_own(type(value)):
        found.names.append(_name_of(type(value)))
        yield from [*getattr(value, "__dict__", {}).values()]


def _is_of_scripts_own(kind: type) -> bool:
    bases = {one.__module__.partition(".")[0] for one in kind.__mro__}
    return is_of_script(kind) and bases.isdisjoint(LIBRARIES)


def _steps_of_dataset(value: Any) -> list[tuple[str, list[Any]]]:
    """Return the steps of a `tf.data.Dataset`, from its end, with their functions."""
    tf = sys.modules.get("tensorflow")  # the image with JAX has none
    if tf is None or not isinstance(value, tf.data.Dataset):
        return []
    from cluster_trainer.private import tensorflow_names  # noqa: PLC0415  it imports TensorFlow

    waiting: list[Any] = [value]
    found: list[tuple[str, list[Any]]] = []
    while waiting and len(found) < LONGEST:
        step = waiting.pop()
        waiting += tensorflow_names.inputs_of(step)
        found.append((type(step).__name__, tensorflow_names.functions_of(step)))
    return found


def _name_of(thing: Any) -> str:
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", "")
    return f"{getattr(thing, '__module__', None)}.{name}"


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is not there yet
        return None


def _told(code: CodeType) -> list[Any]:
    """Return what some code does, without its file and lines, which may move."""
    constants = [_told(one) if isinstance(one, CodeType) else _text(one) for one in code.co_consts]
    return [code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars]


def _text(constant: Any) -> str:
    """Return a constant as text; Python orders a set of strings anew in each process."""
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
