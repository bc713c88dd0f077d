"""The entrypoint's log: each line has a worker and a level, as text or as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from entrypoint.errors import escaped, say

DEBUG, INFO, WARNING, ERROR = "DEBUG", "INFO", "WARNING", "ERROR"

Say = Callable[[str, str], None]
"""Logs a line at a level."""


@dataclass(frozen=True)
class Log:
    """Writes lines to stderr, in the same format as the trainer's."""

    worker: str
    """The worker's name: `worker-1`."""
    as_json: bool = False
    also: Callable[[str], None] | None = None
    """Also receives each line as text."""

    def info(self, message: str) -> None:
        """Log an event."""
        self.line(INFO, message)

    def shared(self, message: str, *, is_chief: bool) -> None:
        """Log an event that every worker logs: INFO on the chief, DEBUG on the others."""
        self.line(shared_level(is_chief=is_chief), message)

    def warning(self, message: str) -> None:
        """Log a possible problem, or one that is being handled."""
        self.line(WARNING, message)

    def error(self, message: str) -> None:
        """Log the reason of a failure."""
        self.line(ERROR, message)

    def line(self, level: str, message: str) -> None:
        """Write one line: `10:28:53 INFO worker-1 …`, or a JSON object."""
        text = f"{time.strftime('%H:%M:%S')} {level} {self.worker} {escaped(message)}"
        say(json_line(level, self.worker, message) if self.as_json else text)
        if self.also:
            self.also(text)

    def message(self, text: str) -> None:
        """Write a message of several lines unchanged; in JSON it is one object with level ERROR."""
        say(json_line(ERROR, self.worker, text) if self.as_json else text)


def shared_level(*, is_chief: bool) -> str:
    """Return the level of a line that every worker logs. The terminal omits DEBUG."""
    return INFO if is_chief else DEBUG


def json_line(level: str, worker: str, message: str) -> str:
    """Return a line as JSON; the time is UTC with milliseconds."""
    return json.dumps({"time": now(), "level": level, "worker": worker, "message": message})


def now() -> str:
    """Return the time as 2026-11-21T10:28:53.123Z."""
    seconds = time.time()
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03d}Z"
