"""The file .env beside compose.yaml, which Compose reads by itself, as far as it is about us."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings.names import is_taken

LINE = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=[ \t]*(?P<value>.*)")
SINGLE_QUOTED = re.compile(r"'(?P<text>[^']*)'\s*(#.*)?")
DOUBLE_QUOTED = re.compile(r'"(?P<text>[^"\\$]*)"\s*(#.*)?')
BARE = re.compile(r"(?P<text>[^'\"$#\s][^$]*?|)(\s+#.*|\s*)")


def over(file: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with those of the file, where they are not set, added.

    Raises:
        EndError: a value that Compose would read in another way than this program.
    """
    return {**read(file), **environ}


def read(file: Path) -> dict[str, str]:
    """Return what the file says of local clusters; a file that is not there says nothing."""
    try:
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return {}
    found = {}
    for number, line in enumerate(text.split("\n"), start=1):
        match = LINE.fullmatch(line.rstrip("\r"))
        if match and is_taken(match["name"]):
            found[match["name"]] = _value(match["value"], f"{file}, line {number}: {match['name']}")
    return found


def _value(text: str, where: str) -> str:
    for form in (SINGLE_QUOTED, DOUBLE_QUOTED, BARE):
        match = form.fullmatch(text)
        if match:
            return match["text"]
    raise EndError(
        EXIT_CONFIGURATION,
        f"{where}: accepted: a value on one line, without $ and \\ (in 'single quotes' with them).",
    )
