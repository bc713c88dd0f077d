"""Messages to the user, and the error that ends a command with some of them."""

from __future__ import annotations

import os
import sys
import threading
from typing import TextIO

PROGRAM = "cluster-trainer"
EXIT_ERROR = 1
EXIT_CONFIGURATION = 78
"""A wrong setting: the same command would fail again."""

ERASE = b"\r\x1b[K"
"""Moves a terminal's cursor to the beginning of the line, and clears the line (ECMA-48)."""

_one_line_at_a_time = threading.Lock()
_drawn = b""


class EndError(Exception):
    """Ends the command with an exit code, after its sentences are printed."""

    def __init__(self, code: int, *sentences: str) -> None:
        super().__init__(*sentences)
        self.code, self.sentences = code, sentences


def say(sentence: str) -> None:
    """Print a sentence, with the program's name."""
    write(sys.stdout, f"{PROGRAM}: {sentence}\n".encode(errors="surrogateescape"))


def complain(sentence: str) -> None:
    """Print a sentence to standard error."""
    write(sys.stderr, f"{PROGRAM}: {sentence}\n".encode(errors="surrogateescape"))


def write(stream: TextIO | None, line: bytes) -> None:
    """Write a whole line at once, from any thread.

    If the terminal was closed, or the pipe's reader has ended, output is discarded from then on:
    the cluster must still be removed.
    """
    if stream is None:  # closed before the start
        return
    with _one_line_at_a_time:
        _put(sys.stdout, ERASE if _drawn else b"")
        _put(stream, line)
        _put(sys.stdout, _drawn)


def draw(stream: TextIO | None, text: str) -> None:
    """Draw a terminal's live line below all other lines; an empty text removes it."""
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
