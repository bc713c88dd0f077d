"""Writes the epochs' numbers to metrics.jsonl, with one object per line."""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cluster_trainer.files import append_whole, write_whole

FILE = "metrics.jsonl"
COUNTS = ("epoch", "step", "test_examples", "examples_per_second", "seconds")
"""The members of a line besides metrics."""
log = logging.getLogger("trainer")


class MetricsFile:
    """A file with the lines of all epochs so far.

    Each finished epoch appends its line. At a start the file is written anew, so that it is
    complete after any interruption. A full disk causes a warning and loses lines, but does not end
    the run.

    Args:
        folder: the folder for the file; it is created if necessary.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._held: int | None = None  # lines; None: the file may be another start's, or cut off
        self._has_warned = False

    def note(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Note all lines so far, of which the last may be a new one."""
        try:
            if self._held is not None and 0 < self._held == len(lines) - 1:
                append_whole(self._file, _text(lines[-1:]))
            else:
                self._write(_text(lines))
            self._held = len(lines)
        except OSError as error:
            self._held = None
            if not self._has_warned:
                log.warning("%s could not be written: %s; training continues", FILE, error)
            self._has_warned = True

    def remove(self) -> None:
        """Remove the file of an earlier start."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def _write(self, text: bytes) -> None:
        with suppress(FileNotFoundError):
            if self._file.read_bytes() == text:
                return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, text, durable=False)


def _text(lines: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()
