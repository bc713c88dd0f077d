"""cluster.env in a run's folder: what the run was started with, one NAME=value a line.

A value that would not survive as it is, such as one of several lines, is written as a JSON string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from local_cluster.settings import names

FILE = "cluster.env"
HEAD = "# What this run was started with; `make resume` takes it from here."
SECRET = "CLUSTER_TOKEN"  # noqa: S105 -- its name, which is all that is kept of it
LINE = re.compile(r"(?P<name>[A-Z0-9_]+)=(?P<value>.*)", re.DOTALL)
IN_NEED_OF_QUOTES = re.compile(r'"|.*[\r\n]', re.DOTALL)


def is_remembered(name: str) -> bool:
    """Whether a variable decides a run: not one start of it, and no secret.

    An index of pip's may hold a password.
    """
    if name in (SECRET, "TRAINER_RESUME", "VERBOSE") or name.startswith("PIP_"):
        return False
    return name in names.OWN or name in names.passed_on()


def remember(folder: Path, environ: Mapping[str, str]) -> str:
    """Write down what decides the run, and return what was there before."""
    before = _text(folder)
    (folder / FILE).write_bytes(render(environ).encode(errors="surrogateescape"))
    return before


def forget(folder: Path, before: str) -> None:
    """Put back what was there before: the workers have refused what came after it."""
    if before:
        (folder / FILE).write_bytes(before.encode(errors="surrogateescape"))


def recall(folder: Path) -> dict[str, str]:
    """Return what the run in a folder was started with; SECRET is there, but empty."""
    return parse(_text(folder))


def render(environ: Mapping[str, str]) -> str:
    """Return the file's text."""
    kept = {
        name: environ[name] for name in sorted(environ) if is_remembered(name) and environ[name]
    }
    lines = [HEAD, *(f"{name}={_quoted(text)}" for name, text in kept.items())]
    if environ.get(SECRET):
        lines.append(f"{SECRET}=")
    return "\n".join(lines) + "\n"


def parse(text: str) -> dict[str, str]:
    """Return what the file says of names that are ours; the workers can write there, too."""
    matches = (LINE.fullmatch(line) for line in text.split("\n"))
    found = {match["name"]: _unquoted(match["value"]) for match in matches if match}
    return {name: text for name, text in found.items() if is_remembered(name) or name == SECRET}


def _text(folder: Path) -> str:
    try:
        return (folder / FILE).read_bytes().decode(errors="surrogateescape")
    except FileNotFoundError:
        return ""


def _quoted(text: str) -> str:
    return json.dumps(text) if IN_NEED_OF_QUOTES.match(text) else text


def _unquoted(text: str) -> str:
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text))
    except ValueError:  # as earlier versions wrote it, or as somebody typed it
        return text
