"""Reads the variables of local clusters from .env beside compose.yaml, which Compose reads, too."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings.names import is_taken

LINE = re.compile(
    r"\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*(?P<sign>[=:])[ \t]*(?P<value>.*)"
)
SINGLE_QUOTED = re.compile(r"'(?P<text>[^']*)'\s*(#.*)?")
DOUBLE_QUOTED = re.compile(r'"(?P<text>[^"\\$]*)"\s*(#.*)?')
BOM = "\ufeff"
PATHS = ("RUNS_DIR", "DATA_DIR", "WORKSPACE_DIR", "SCRIPT")
HOSTS = "HOSTS"
"""Entries, or the path of a file with entries."""
BARE = re.compile(r"(?P<text>[^'\"$#\s][^$]*?|)(\s+#.*|\s*)")


def over(file: Path, environ: Mapping[str, str], *, strict: bool = True) -> dict[str, str]:
    """Return the variables, with those of the file that are not set.

    Raises:
        EndError: the file cannot be read, or Compose would read a value differently than this
            program; if `strict` is False, such values are skipped.
    """
    return {**read(file, strict=strict), **environ}


def read(file: Path, *, strict: bool = True) -> dict[str, str]:
    """Return the file's values for local clusters; empty if there is no file."""
    found: dict[str, str] = {}
    text = _text(file, strict=strict)
    if strict and text.startswith(BOM):
        received = "received a byte order mark (BOM) at its beginning"
        raise EndError(EXIT_CONFIGURATION, f"{file}: {received}; accepted: UTF-8 without one.")
    for number, line in enumerate(text.removeprefix(BOM).split("\n"), start=1):
        match = LINE.fullmatch(line.rstrip("\r"))
        if match and is_taken(match["name"]):
            try:
                found[match["name"]] = _value(match, file, number)
            except EndError:
                if strict:
                    raise
    return found


def _text(file: Path, *, strict: bool) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        if strict:
            raise EndError(EXIT_CONFIGURATION, f"{file}: {error.strerror}.") from error
        return ""


def _value(match: re.Match[str], file: Path, number: int) -> str:
    """Return a line's value. A path is relative to the file's folder, as in Compose."""
    where = f"{file}, line {number}: {match['name']}"
    if match["sign"] == ":":  # Compose takes it, make does not
        raise EndError(EXIT_CONFIGURATION, f"{where}: accepted: {match['name']}=value.")
    text = _unquoted(match["value"], where)
    path = os.path.join(file.parent, os.path.expanduser(text))  # noqa: PTH111, PTH118 -- links are not resolved
    if text and match["name"] in PATHS:
        return path
    if match["name"] == HOSTS and os.path.isfile(path):  # noqa: PTH113 -- of any length
        return path
    return text


def _unquoted(text: str, where: str) -> str:
    for form in (SINGLE_QUOTED, DOUBLE_QUOTED, BARE):
        match = form.fullmatch(text)
        if match:
            return match["text"]
    raise EndError(
        EXIT_CONFIGURATION,
        f"{where}: accepted: a value on one line, without $ and \\ (in 'single quotes' with them).",
    )
