"""Where in a script a `fit` is called: what tells one call from another in a later start."""

import dis
import linecache
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

OUTER_FRAMES = 40
DIGEST_LENGTH = 12
NOT_A_USERS = ("keras", "cluster_trainer")
INSTALLED = (
    *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")},
    str(Path(__file__).parents[3]),
)
"""Where Python's own modules lie, installed packages, and this one."""


@dataclass(frozen=True)
class Line:
    """One line of a script that was executing.

    Attributes:
        file: its path.
        function: the function that it is in; `<module>` outside of all.
        text: the line without its indentation; empty where there is no source.
    """

    file: str
    function: str
    text: str

    def is_in_source(self) -> bool:
        """Tell whether the file has the line and the function still; yes where there is none."""
        lines = [line.strip() for line in linecache.getlines(self.file)]
        if not lines:
            return True
        is_module = self.function.startswith("<")
        has_function = is_module or any(
            line.startswith(f"def {self.function.rpartition('.')[2]}(") for line in lines
        )
        return has_function and self.text in lines


@dataclass(frozen=True)
class Place:
    """Where a call of the script is, from the inside out.

    Values are kept as digests, since they may be secrets.

    Attributes:
        lines: the line that calls, the line that calls its function, and so on.
        numbers: digests of loop variables and numeric parameters of these functions, by name.
        words: digests of the parameters that are text, by name.
    """

    lines: tuple[Line, ...] = ()
    numbers: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The calling line in words: `train(): model.fit(x, y)`."""
        if not self.lines:
            return "no line of Python"
        first = self.lines[0]
        function = "" if first.function.startswith("<") else f"{first.function}(): "
        return f"{function}{first.text}" or first.file

    def has_lines_of(self, other: "Place") -> bool:
        """Tell whether the same lines lead to both; files may lie elsewhere."""
        return _without_files(self) == _without_files(other)

    def is_in_source(self) -> bool:
        """Tell whether the script, as it is now, could still come here."""
        return all(line.is_in_source() for line in self.lines)


def _without_files(place: Place) -> list[tuple[str, str]]:
    return [(line.function, line.text) for line in place.lines]


def place_of(frame: FrameType | None) -> Place:
    """Return where the script is, from the frame of something that it has called.

    Frames of Keras, of this package and of installed packages are left out: what these do between
    the script and the call is the same in each start.
    """
    lines: list[Line] = []
    numbers: dict[str, str] = {}
    words: dict[str, str] = {}
    for one in _of_script(frame):
        code = one.f_code
        depth = len(lines)
        text = linecache.getline(code.co_filename, one.f_lineno).strip()
        lines.append(Line(code.co_filename, code.co_qualname, text))
        for name in _telling_names(code):
            value = _plain(one.f_locals.get(name))
            if value is None:
                continue
            is_word = isinstance(value, str) and name not in _loop_variables(code)
            (words if is_word else numbers)[f"{name} of frame {depth}"] = digest_of(repr(value))
    return Place(tuple(lines), numbers, words)


def digest_of(text: str) -> str:
    """Return what tells one text from another, and does not show it."""
    return sha256(text.encode(errors="surrogateescape")).hexdigest()[:DIGEST_LENGTH]


def _of_script(frame: FrameType | None) -> Iterator[FrameType]:
    found = 0
    while frame is not None and found < OUTER_FRAMES:
        if _is_of_script(frame):
            found += 1
            yield frame
        frame = frame.f_back


def _is_of_script(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package not in NOT_A_USERS and not is_installed(frame.f_code.co_filename)


def is_installed(file: str) -> bool:
    """Tell whether a file is not a script's, but of Python or of an installed package."""
    return file.startswith((*INSTALLED, "<frozen "))


def _telling_names(code: CodeType) -> list[str]:
    """Return the parameters and loop variables of a function: they say which call of many it is."""
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return sorted({*parameters, *_loop_variables(code)})


@cache
def _loop_variables(code: CodeType) -> frozenset[str]:
    """Return the names that the `for` statements of some code assign.

    They are read from its instructions, since there may be no source: what FOR_ITER yields is
    stored next, after it is unpacked where there are several names.
    """
    names: set[str] = set()
    follows = False
    for instruction in dis.get_instructions(code):
        is_store = instruction.opname.startswith("STORE_") and follows
        if is_store and instruction.opname not in {"STORE_ATTR", "STORE_SUBSCR"}:
            stored = instruction.argval
            names.update(stored if isinstance(stored, tuple) else (stored,))
        elif not instruction.opname.startswith("UNPACK_"):
            follows = instruction.opname == "FOR_ITER"
    return frozenset(names)


def _plain(value: Any) -> Any:
    """Return a number or a text as Python has it; None for anything else."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (bool, int, float, str)) else None
