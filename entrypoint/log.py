"""The entrypoint's log: each line has a worker and a level, as text or as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from entrypoint.errors import escaped, say

DEBUG, INFO, WARNING, ERROR = "DEBUG", "INFO", "WARNING", "ERROR"

Say = Callable[[str, str], None]
"""Takes a level, and a line."""


@dataclass(frozen=True)
class Log:
    """Writes lines to stderr; the trainer's have the same form."""

    worker: str
    """`worker-1`."""
    as_json: bool = False
    also: Callable[[str], None] | None = None
    """Is given each line as text, too."""

    def info(self, message: str) -> None:
        """Say what goes on."""
        self.line(INFO, message)

    def shared(self, message: str, *, is_chief: bool) -> None:
        """Say what every worker says: the chief speaks for all, and the others' line is DEBUG."""
        self.line(shared_level(is_chief=is_chief), message)

    def warning(self, message: str) -> None:
        """Say what may be wrong, or is being mended."""
        self.line(WARNING, message)

    def error(self, message: str) -> None:
        """Say why something ends."""
        self.line(ERROR, message)

    def line(self, level: str, message: str) -> None:
        """Write one line: `10:28:53 INFO worker-1 …`, or a JSON object."""
        text = f"{time.strftime('%H:%M:%S')} {level} {self.worker} {escaped(message)}"
        say(json_line(level, self.worker, message) if self.as_json else text)
        if self.also:
            self.also(text)

    def message(self, text: str) -> None:
        """Write a message of several lines as it is; in JSON it is one object, an error."""
        say(json_line(ERROR, self.worker, text) if self.as_json else text)


def shared_level(*, is_chief: bool) -> str:
    """Return the level of a line that the chief says as well; screens leave out DEBUG."""
    return INFO if is_chief else DEBUG


def json_line(level: str, worker: str, message: str) -> str:
    """Return a line for machines; time is UTC with milliseconds."""
    return json.dumps({"time": now(), "level": level, "worker": worker, "message": message})


def now() -> str:
    """Return the time as 2026-11-21T10:28:53.123Z."""
    seconds = time.time()
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03d}Z"
