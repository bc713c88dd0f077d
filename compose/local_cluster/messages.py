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

_one_line_at_a_time = threading.Lock()


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
        try:
            stream.buffer.write(line)
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
