"""The `.env` file: NAME=value lines, read with python-dotenv."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from entrypoint.errors import Problem
from entrypoint.settings.text_files import (
    READABLE_FILE,
    UnreadableFileError,
    is_file,
    read_text,
)

if TYPE_CHECKING:
    from dotenv.parser import Original

DEFAULT_NAME = ".env"


@dataclass(frozen=True)
class DotenvFile:
    """What such a file said."""

    source: str = DEFAULT_NAME
    values: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def read_dotenv(named: str | None, directory: Path) -> DotenvFile:
    """Read the file that ENV_FILE names, else `.env` in the directory if that is a file.

    A directory called `.env` is somebody's virtual environment, and no problem.
    """
    path = directory / (named or DEFAULT_NAME)
    if not named and not is_file(path):
        return DotenvFile()
    source = f"file {named}" if named else DEFAULT_NAME
    try:
        text = read_text(path)
    except UnreadableFileError as error:
        name = "ENV_FILE" if named else DEFAULT_NAME
        problem = Problem(name, named or str(path), READABLE_FILE, str(error))
        return DotenvFile(source, problems=(problem,))
    return _parse(text, source)


def _parse(text: str, source: str) -> DotenvFile:
    """Return the file's values, the last one of a name, and its lines that are no NAME=value.

    Values are taken as they stand: `$NAME` in them is not replaced. A name alone on a line has no
    value, so it sets nothing. What a bad line says is not repeated: it may be a secret.
    """
    # Here, because it takes 10 ms to import and most containers have no such file.
    from dotenv.parser import parse_stream  # noqa: PLC0415

    values, problems = {}, []
    for binding in parse_stream(io.StringIO(text)):
        if binding.error or "=" in (binding.key or ""):
            name = f"{source} line {_line(binding.original)}"
            problems.append(Problem(name, "(not shown)", "NAME=value, a comment or nothing"))
        elif binding.key and binding.value is not None:
            values[binding.key] = binding.value
    return DotenvFile(source, values, tuple(problems))


def _line(original: Original) -> int:
    """Return the line, from 1, of a statement; the parser's is that of the empty lines before."""
    text = original.string
    return original.line + text[: len(text) - len(text.lstrip())].count("\n")
