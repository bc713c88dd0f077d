"""Reads small text files that the user has named, and `.env`. It never blocks."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from entrypoint.errors import Problem

if TYPE_CHECKING:
    from dotenv.parser import Original


MAX_FILE_BYTES = 1 << 20

READABLE_FILE = "a readable UTF-8 text file of at most 1 MiB"


class UnreadableFileError(Exception):
    """A file cannot be used; the message is a sentence that explains why."""


def is_file(path: Path) -> bool:
    """Whether the file exists, as far as this user can tell."""
    return os.path.isfile(path)  # noqa: PTH113 -- Path.is_file() raises PermissionError and others


def read_text(path: Path) -> str:
    """Return the file's text, without a byte order mark and without trailing newlines.

    Raises UnreadableFileError.
    """
    try:
        content = _read_bytes(path)
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        reason = "It is not UTF-8 text."
        raise UnreadableFileError(reason) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL byte
        raise UnreadableFileError(_reason(error)) from None
    if "\0" in text:
        reason = "It is not text: it contains NUL bytes."
        raise UnreadableFileError(reason)
    return text.rstrip("\r\n")


def _read_bytes(path: Path) -> bytes:
    """Return the content of a regular file; any other kind could block a reader forever."""
    if stat.S_ISDIR(mode := path.stat().st_mode):
        reason = "It is a directory."
        raise UnreadableFileError(reason)
    if not stat.S_ISREG(mode):
        reason = "It is not a regular file."
        raise UnreadableFileError(reason)
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        reason = "It is larger than 1 MiB."
        raise UnreadableFileError(reason)
    return content


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "It does not exist."
    if isinstance(error, PermissionError):
        return f"User id {os.geteuid()} has no permission to read it."
    reason = error.strerror if isinstance(error, OSError) else None
    return f"It cannot be read: {reason or 'that is not a path'}."


DEFAULT_NAME = ".env"


@dataclass(frozen=True)
class DotenvFile:
    """The content of a `.env` file."""

    source: str = DEFAULT_NAME
    values: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def read_dotenv(named: str | None, directory: Path) -> DotenvFile:
    """Read the file that ENV_FILE names, otherwise `.env` in the directory if that is a file.

    A directory named `.env` is a virtual environment, and not a problem.
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
    """Return the file's values, and a problem for each invalid line.

    If a name occurs twice, the last value counts. Values are used unchanged: `$NAME` is not
    expanded. A name without `=` sets nothing. A problem does not quote the line, which may be a
    secret.
    """
    # Imported here: the import takes 10 ms, and most containers have no such file.
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
    """Return the line number of a statement; the parser counts from the empty lines before it."""
    text = original.string
    return original.line + text[: len(text) - len(text.lstrip())].count("\n")
