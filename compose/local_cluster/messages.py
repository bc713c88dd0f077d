"""What a person is told, and the error that ends a command with it."""

from __future__ import annotations

import os
import sys
import threading
from typing import TextIO

PROGRAM = "cluster-trainer"
EXIT_ERROR = 1
EXIT_CONFIGURATION = 78
"""A mistake in what was given: the same would fail again."""

ERASE = b"\r\x1b[K"
"""What moves a terminal's cursor to the line's begin, and empties the line (ECMA-48)."""

_one_line_at_a_time = threading.Lock()
_drawn = b""


class EndError(Exception):
    """Ends the command with an exit code, after some sentences (or none: all is said)."""

    def __init__(self, code: int, *sentences: str) -> None:
        super().__init__(*sentences)
        self.code, self.sentences = code, sentences


def say(sentence: str) -> None:
    """Print a sentence of the program's own."""
    write(sys.stdout, f"{PROGRAM}: {sentence}\n".encode(errors="surrogateescape"))


def complain(sentence: str) -> None:
    """Print a sentence to standard error."""
    write(sys.stderr, f"{PROGRAM}: {sentence}\n".encode(errors="surrogateescape"))


def write(stream: TextIO | None, line: bytes) -> None:
    """Write a whole line at once, from any thread.

    A terminal that was closed, or a pipe that nobody reads any more, is no reason to leave a
    cluster behind: what is written there from now on is lost.
    """
    if stream is None:  # it was closed before the start
        return
    with _one_line_at_a_time:
        _put(sys.stdout, ERASE if _drawn else b"")
        _put(stream, line)
        _put(sys.stdout, _drawn)


def draw(stream: TextIO | None, text: str) -> None:
    """Draw the one line of a terminal that stays below all others; an empty text removes it."""
    global _drawn  # noqa: PLW0603 -- there is one terminal
    with _one_line_at_a_time:
        drawn = text.encode(errors="replace")
        if drawn != _drawn:
            _put(stream, ERASE + drawn)
            _drawn = drawn


def _put(stream: TextIO | None, content: bytes) -> None:
    if stream is None or not content:
        return
    try:
        stream.buffer.write(content)
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
