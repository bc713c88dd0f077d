"""Finds the place in a script where a `fit` is called, to recognise the call in a later start."""

import dis
import inspect
import linecache
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import CodeType, FrameType
from typing import Any

import numpy as np

from cluster_trainer.fits.identity.functions import DEEPEST, LONGEST, Functions, functions_within
from cluster_trainer.installed import OURS, PACKAGES, STANDARD, is_installed
from cluster_trainer.same_code.script_text import digest_of

OUTER_FRAMES = 40
LIKE_A_TIME, LIKE_A_DATE = 1e8, re.compile(r"/|\d{4}")
ITERATING = ("FOR_ITER", "LIST_EXTEND", "SET_UPDATE", "UNPACK_SEQUENCE", "UNPACK_EX")
READERS = ("list", "tuple", "set", "dict", "sorted", "max", "min", "sum", "any", "all", "next")
"""Built-in functions that read an iterator."""
EMPTY = ("PUSH_NULL", "PRECALL", "KW_NAMES", "RESUME")
NOT_A_USERS = ("keras", "tensorflow", "cluster_trainer")
LAUNCHER = "runpy"
"""The module that runs a script within another program, as for `python -m`."""


@dataclass(frozen=True)
class Line:
    """A call in a script that is running.

    Attributes:
        file: the path of the script's file.
        function: the qualified name of the function that contains it; `<module>` outside of all.
        text: the source of the call, in one line; empty: there is no source.
        occurrence: its number among the function's calls with this text, from 0.
    """

    file: str
    function: str
    text: str
    occurrence: int = 0

    def is_in_source(self) -> bool:
        """Tell whether the file still has this text; True if there is no file."""
        try:
            lines = linecache.getlines(self.file)
        except ValueError:  # not a file's name
            return True
        return not lines or self.text in _in_one_line("".join(lines))


@dataclass(frozen=True)
class Place:
    """The place of a call in the script, from the inside out.

    Attributes:
        lines: the line that calls, the line that calls its function, and so on.
        numbers: digests of loop variables and of integer parameters, by name.
        words: digests of other plain parameters, such as strings, by name.
        is_certain: whether these identify the call. They do not in a `while` loop, or in a loop
            over objects that cannot be compared.
        functions: digests of the names of functions and classes among loop variables and
            parameters, by name; None: an earlier version did not record them.
        held: digests of the values that functions among the parameters hold, and of lambdas.
    """

    lines: tuple[Line, ...] = ()
    numbers: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    is_certain: bool = True
    functions: Mapping[str, str] | None = None
    held: Mapping[str, str] | None = None

    @property
    def values(self) -> tuple[object, ...]:
        """Everything that is compared besides the lines."""
        named = (self.numbers, self.words, self.functions or {}, self.held or {})
        return tuple(tuple(one.items()) for one in named)

    @property
    def shown(self) -> str:
        """The calling line in words: `train(): model.fit(x, y)`."""
        if not self.lines:
            return "no line of Python"
        first = self.lines[0]
        function = "" if first.function.startswith("<") else f"{first.function}(): "
        return f"{function}{first.text}" or first.file

    def has_lines_of(self, other: "Place") -> bool:
        """Tell whether the same lines lead to both calls; the files' paths may differ."""
        return _without_files(self) == _without_files(other)

    def is_in_source(self) -> bool:
        """Tell whether the present script still has all of this place's lines."""
        return all(line.is_in_source() for line in self.lines)


def _without_files(place: Place) -> list[tuple[str, str, int]]:
    return [(line.function, line.text, line.occurrence) for line in place.lines]


def place_of(frame: FrameType | None) -> Place:
    """Return the place in the script from which a frame was called, directly or not.

    Frames of Keras, TensorFlow, Python's own modules and this package are left out.
    """
    frames = _of_script(frame)
    found = [_Values.of(one, depth) for depth, one in enumerate(frames)]
    called_from = zip(frames[1:], found, strict=False)
    return Place(
        lines=tuple(map(_line_of, frames)),
        numbers=_joined(one.numbers for one in found),
        words=_joined(one.words for one in found),
        is_certain=all(one.is_certain for one in found)
        and all(values.identify or not _iterates(caller) for caller, values in called_from),
        functions=_joined(one.functions for one in found),
        held=_joined(one.held for one in found),
    )


@dataclass(frozen=True)
class _Values:
    """The loop variables and parameters of a frame; see Place.

    Attributes:
        numbers, words, functions, held, is_certain: see Place.
        identify: whether the parameters, or a generator's loops, tell apart calls by `map`.
    """

    numbers: Mapping[str, str]
    words: Mapping[str, str]
    functions: Mapping[str, str]
    held: Mapping[str, str]
    is_certain: bool
    identify: bool

    @classmethod
    def of(cls, frame: FrameType, depth: int) -> "_Values":
        loops = _loops_around(frame.f_code, frame.f_lasti)
        looped = {name for names in loops for name in names}
        parameters = {*_parameters(frame.f_code)} - looped
        own = _variables(frame, parameters | looped)
        in_loops = {name: _Told.of_loop(own[name]) for name in looped & own.keys()}
        given = {name: _Told.of_parameter(own[name]) for name in parameters & own.keys()}
        counts = {name for name, one in given.items() if isinstance(one.plain, (bool, int))}
        both = in_loops | given
        return cls(
            numbers=_digests({name: both[name].plain for name in {*in_loops, *counts}}, depth),
            words=_digests({name: given[name].plain for name in {*given} - counts}, depth),
            functions=_digests({name: one.functions or None for name, one in both.items()}, depth),
            held=_digests({name: one.held for name, one in both.items()}, depth),
            is_certain=all(
                names and all(name in own and in_loops[name].is_compared for name in names)
                for names in loops
            ),
            identify=bool(frame.f_code.co_flags & inspect.CO_GENERATOR)
            or (bool(given) and all(one.is_compared for one in given.values())),
        )


@dataclass(frozen=True)
class _Told:
    """What is compared of a variable's value.

    Attributes:
        plain: see `_plain`.
        functions: the names of functions within it; of a loop's variable, also what they hold.
        held: what functions within a parameter hold; None: nothing.
        is_compared: whether another value would be told from this one.
    """

    plain: Any
    functions: list[Any]
    held: Any
    is_compared: bool

    @classmethod
    def of_loop(cls, value: Any) -> "_Told":
        plain, within = (
            _plain(value, with_objects=True),
            functions_within(value, with_objects=True),
        )
        is_compared = _is_compared(value, plain, within)
        return cls(plain, [*within.names, *within.values], None, is_compared)

    @classmethod
    def of_parameter(cls, value: Any) -> "_Told":
        plain, within = _plain(value, lasting=True), functions_within(value)
        held = _plain(within.values, lasting=True)
        return cls(plain, within.names, held, _is_compared(value, plain, within))


def _is_compared(value: Any, plain: Any, within: Functions) -> bool:
    return within.is_known and (value is None or plain is not None or bool(within.names))


def _joined(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {name: digest for part in parts for name, digest in part.items()}


def _iterates(frame: FrameType) -> bool:
    """Tell whether a frame reads from an iterator, such as a `map`, that calls a function."""
    done = [one for one in _instructions(frame.f_code) if one.offset <= frame.f_lasti]
    *before, now = done
    if not now.opname.startswith("CALL"):
        return now.opname in ITERATING
    # The expression of a call begins with what is called: `list(…)`, and not `list(…).sort(…)`.
    parts = [one for one in before if _begin_of(one) == _begin_of(now) and one.opname not in EMPTY]
    is_name = len(parts) == 1 and parts[0].opname in {"LOAD_NAME", "LOAD_GLOBAL"}
    return is_name and parts[0].argval in READERS


def _begin_of(one: dis.Instruction) -> tuple[int | None, int | None] | None:
    return one.positions and (one.positions.lineno, one.positions.col_offset)


@cache
def _instructions(code: CodeType) -> Sequence[dis.Instruction]:
    # EXTENDED_ARG comes before a long jump, and is part of it.
    return [one for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG"]


def _of_script(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of a script, and of packages through which it trains, the innermost first.

    Frames outside of the script, such as a launcher's, are left out. The script is the outermost
    file that is not installed. Without one it is the code of `python -c`, or else nothing.
    """
    found = []
    while frame is not None and frame.f_globals.get("__name__") != LAUNCHER:
        if _is_of_script(frame):
            found.append(frame)
        frame = frame.f_back
    files = [one.f_code.co_filename for one in found]
    others = [at for at, file in enumerate(files) if not is_installed(file)]
    own = [at for at in others if not files[at].startswith("<")] or others
    return found[: own[-1] + 1 if own else None][:OUTER_FRAMES]


def _is_of_script(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    file = frame.f_code.co_filename
    is_standard = file.startswith(STANDARD) and not file.startswith(PACKAGES)
    return package not in NOT_A_USERS and not is_standard and not file.startswith(OURS)


def _line_of(frame: FrameType) -> Line:
    code = frame.f_code
    calls = _calls(code)
    span = calls.get(frame.f_lasti, (frame.f_lineno, frame.f_lineno))
    text = _text(code.co_filename, span)
    earlier = {one for one in calls.values() if one < span}
    occurrence = sum(_text(code.co_filename, one) == text for one in earlier)
    return Line(code.co_filename, code.co_qualname, text, occurrence)


@cache
def _calls(code: CodeType) -> dict[int, tuple[int, int]]:
    """Return the first and last line of each call in some code, by its instruction's offset."""
    return {
        one.offset: (one.positions.lineno, one.positions.end_lineno)
        for one in dis.get_instructions(code)
        if one.opname.startswith("CALL")
        and one.positions
        and one.positions.lineno
        and one.positions.end_lineno
    }


def _text(file: str, span: tuple[int, int]) -> str:
    return _in_one_line("".join(linecache.getlines(file)[span[0] - 1 : span[1]]))


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


def _parameters(code: CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    flags = (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)
    return code.co_varnames[: count + sum(bool(code.co_flags & flag) for flag in flags)]


@cache
def _loops_around(code: CodeType, offset: int) -> tuple[frozenset[str], ...]:
    """Return the variables of each loop around an instruction; a `while` loop has none.

    They are read from the bytecode, because there may be no source. A loop ends with a jump back.
    If the jump leads to a FOR_ITER, the names that are stored next are the loop's variables.
    """
    instructions = _instructions(code)
    ends: dict[int, int] = {}
    for one in instructions:
        if "JUMP_BACKWARD" in one.opname:
            begin = next(to.offset for to in instructions if to.offset >= one.argval)
            ends[begin] = max(one.offset, ends.get(begin, 0))
    # At its FOR_ITER itself, a loop's iterator is running, and has not given the next value yet.
    around = [begin for begin, end in ends.items() if begin < offset <= end]
    return tuple(_stored_after(instructions, begin) for begin in around)


def _stored_after(instructions: Sequence[dis.Instruction], begin: int) -> frozenset[str]:
    """Return the names stored by the FOR_ITER at an offset; none if it is another instruction."""
    names: set[str] = set()
    place = next(at for at, one in enumerate(instructions) if one.offset >= begin)
    if instructions[place].opname != "FOR_ITER":
        return frozenset()
    for one in instructions[place + 1 :]:
        if one.opname.startswith("STORE_") and one.opname not in {"STORE_ATTR", "STORE_SUBSCR"}:
            names.update(one.argval if isinstance(one.argval, tuple) else (one.argval,))
        elif not one.opname.startswith("UNPACK_"):
            break
    return frozenset(names)


def _variables(frame: FrameType, names: Collection[str]) -> dict[str, Any]:
    own = frame.f_locals
    found = {name: own[name] for name in names if name in own}
    # Before Python 3.13 the frame keeps this copy, which would keep the script's models alive.
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and sys.version_info < (3, 13):
        own.clear()
    return found


def _digests(values: Mapping[str, Any], depth: int) -> dict[str, str]:
    """Return a digest of each value, by the name of the variable and its frame."""
    named = {f"{name} of frame {depth}": one for name, one in values.items() if one is not None}
    return {name: digest_of(repr(one)) for name, one in sorted(named.items())}


def _lasts(value: Any) -> bool:
    """Tell whether a number or a text is likely the same at each start: no path, date or time."""
    if isinstance(value, float):
        return abs(value) < LIKE_A_TIME
    return not (isinstance(value, str) and LIKE_A_DATE.search(value))


def _plain(value: Any, depth: int = 0, *, with_objects: bool = False, lasting: bool = False) -> Any:
    """Return numbers, strings, and containers of these; None for anything else.

    Args:
        value: the value of a variable.
        depth: the number of containers around it.
        with_objects: whether an object is represented by its plain attributes.
        lasting: whether to omit paths, dates and times.
    """
    value = value.item() if isinstance(value, np.generic) else value
    value = str(value) if isinstance(value, Enum) else value
    if isinstance(value, (bool, int, float, str)):
        return value if not lasting or _lasts(value) else None
    if depth == DEEPEST or value is None or callable(value):
        return None
    if is_dataclass(value):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
    elif with_objects and type(value).__module__ != "builtins":
        value = getattr(value, "__dict__", None)
    if isinstance(value, Mapping):
        named = [*value.items()]
        items = [(str(key), _plain(one, depth + 1, lasting=lasting)) for key, one in named]
        return [item for item in items if item[1] is not None] or None
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr)
    if isinstance(value, (list, tuple, range)):
        items = [_plain(one, depth + 1, lasting=lasting) for one in value[:LONGEST]]
        return [item for item in items if item is not None] or None
    return None
