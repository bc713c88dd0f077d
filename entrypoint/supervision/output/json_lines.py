"""A command's output as JSON: one object per line."""

from __future__ import annotations

import json
import re
from contextlib import suppress

from entrypoint.log import ERROR, INFO, WARNING, json_line, now

LONGEST_LINE = 65_536
"""The number of bytes of a line. Longer lines are split, so that output without newlines needs no
memory."""

_LEVELS = {"I": INFO, "W": WARNING, "E": ERROR, "F": ERROR, "CRITICAL": ERROR}
_WORDS = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
_OURS = re.compile(rf"\d\d:\d\d:\d\d ({_WORDS}) \S+ (.*)", re.DOTALL)
_PYTHON = re.compile(rf"({_WORDS}):")
_TENSORFLOW = re.compile(r"(?:\d{4}-\d\d-\d\d [\d:.]+: )?([IWEF])(?:\d{4} [\d:.]+)? ")
"""`2026-11-21 10:28:53.123456: W tensorflow/…` and absl's `W0000 00:00:1795256933.123456  12 …`."""


class LineCutter:
    """Splits a stream of bytes into lines; keeps the unfinished last line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that these bytes complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > LONGEST_LINE:
            lines.append(self._rest[:LONGEST_LINE])
            self._rest = self._rest[LONGEST_LINE:]
        return [_text(line) for line in lines]

    def end(self) -> list[str]:
        """Return the unfinished last line, if any."""
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest else []


def _text(line: bytes) -> str:
    """Return a line as text; for a progress bar that redraws itself, the last state only."""
    return line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]


def as_json(line: str, worker: str, default_level: str) -> str:
    """Return a line as an object with time, level, worker and message.

    A line that is already a JSON object keeps its members, and gets the missing ones. JSON has no
    NaN and no infinity, so a line with one of them is a message.
    """
    if line.startswith("{"):
        added = {"time": now(), "level": default_level, "worker": worker}
        with suppress(ValueError, RecursionError):
            if isinstance(members := json.loads(line), dict):
                return json.dumps(added | members, allow_nan=False)
    level, message = level_of(line, default_level)
    return json_line(level, worker, message)


def level_of(line: str, default_level: str) -> tuple[str, str]:
    """Return the level that a line names, else the default; and the line without our prefix."""
    if match := _OURS.fullmatch(line):
        return _LEVELS.get(match[1], match[1]), match[2]
    match = _PYTHON.match(line) or _TENSORFLOW.match(line)
    return (_LEVELS.get(match[1], match[1]) if match else default_level), line
