"""Configuration errors and their messages, exit codes, and helpers for text."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

EXIT_NOT_WRITTEN = 1
EXIT_PEER_LOST = 75  # EX_TEMPFAIL of sysexits.h: a retry may help
EXIT_NOBODY_CAME = 76  # only the gate's process uses it; the container exits with 75 or 0
EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h: a retry changes nothing
EXIT_NOT_EXECUTABLE = 126  # as a shell does
EXIT_NOT_FOUND = 127  # as a shell does

FINAL_CODES = (EXIT_CONFIGURATION, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND)
"""Codes after which a retry changes nothing."""
SIGNAL_CODES = 128
"""The exit code of a process that a signal ended is this plus the signal's number."""
STOP_CODES = (SIGNAL_CODES + signal.SIGINT, SIGNAL_CODES + signal.SIGTERM)
"""Codes of a worker that was asked to stop."""

STDOUT, STDERR = 1, 2
"""File descriptors."""

LONGEST_SHOWN = 200
"""The number of characters of a received value that a message shows."""

MOST_LISTED = 5
"""The number of names that a sentence lists."""

MOST_SHOWN = 50
"""The number of problems that a message shows: a wrong file read as a host list has thousands."""

HIDDEN = "***"
"""Stands for a secret."""

SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "KEY")
"""If a variable's name contains one of these words, its value is a secret."""
NO_SECRET = re.compile(
    r"(?<![^\W_])(DONKEY|HOCKEY|KEYBOARD|KEYFRAME|KEYPOINT|KEYWORD|MONKEY|TOKENIZER|TURKEY)S?"
    r"(?![^\W_])"
)
"""Whole words of a name that contain one of these words, but name no secret."""

IN_ADDRESS = re.compile(r"(://[^/\s:@]*:)[^/\s@]+(?=@)")
"""The password in an address, such as postgresql://ana:…@host."""

PATHS = re.compile(r" \(file [^)]*\)|(?:^|(?<= ))/\S*")
"""The parts of a problem's name that are paths: `WORKER_HOSTS (file /run/secrets/hosts)`. They do
not make its value a secret."""


@dataclass(frozen=True)
class Problem:
    """One thing that the user must change."""

    name: str
    """The variable, with its place or flag: `TF_CONFIG cluster.worker[1]`."""
    received: str | None
    """The value as it was given; None if there was none."""
    accepted: str
    """What would be accepted."""
    advice: str = ""
    """A sentence of advice, or ""."""


@dataclass(frozen=True)
class OpenProblem(Problem):
    """A problem that may be temporary. For example, a name server has not answered yet."""


class ConfigurationError(Exception):
    """The user's configuration is wrong. The error lists all problems that were found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(render(self.problems))

    @property
    def exit_code(self) -> int:
        """78, or 75 if every problem may be temporary."""
        return EXIT_PEER_LOST if _are_open(self.problems) else EXIT_CONFIGURATION


def all_of(*steps: Callable[[], Any]) -> tuple[Any, ...]:
    """Run all steps and return their results; raise one ConfigurationError with all problems."""
    results: list[Any] = []
    problems: list[Problem] = []
    for step in steps:
        try:
            results.append(step())
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return tuple(results)


def raise_any(problems: Iterable[Problem]) -> None:
    """Raise ConfigurationError if there are problems."""
    if found := tuple(problems):
        raise ConfigurationError(found)


def render(problems: Sequence[Problem], notes: Iterable[str] = ()) -> str:
    """Return the message: each problem on its own line, then the notes."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    where = "that may be temporary" if _are_open(problems) else "in the configuration"
    return "\n".join(
        [
            f"cluster-trainer: {count} {where}",
            "",
            *(f"  {_line(problem)}" for problem in problems[:MOST_SHOWN]),
            *([f"  … and {len(problems) - MOST_SHOWN} more"] * (len(problems) > MOST_SHOWN)),
            *(f"  ({escaped(note)})" for note in notes),
            "",
            "Nothing was started. docs/reference/variables.md explains every variable.",
        ],
    )


def _are_open(problems: Sequence[Problem]) -> bool:
    return bool(problems) and all(isinstance(problem, OpenProblem) for problem in problems)


def _line(problem: Problem) -> str:
    """Return a problem as one line; the value is hidden if the name is a secret's."""
    is_hidden = is_secret(PATHS.sub("", problem.name))
    received = HIDDEN if problem.received and is_hidden else problem.received
    value = "nothing" if received is None else f'"{shortened(escaped(without_password(received)))}"'
    name = shortened(escaped(problem.name))
    line = f"{name}: received {value}; accepted: {escaped(problem.accepted)}."
    return f"{line} {escaped(problem.advice)}".rstrip()


def is_secret(name: str) -> bool:
    """Whether the value of this name must not be shown."""
    words = NO_SECRET.sub("", name.upper())
    return any(word in words for word in SECRET_WORDS)


def without_password(text: str) -> str:
    """Return a text without the passwords of addresses in it."""
    return IN_ADDRESS.sub(rf"\1{HIDDEN}", text)


def escaped(text: str) -> str:
    """Return a text without control characters or surrogates, safe for one line of a terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else ascii(char)[1:-1]  # \n, \x1b, \ud800
        for char in text
    )


def shortened(text: str, longest: int = LONGEST_SHOWN) -> str:
    """Return at most `longest` characters; if something is cut off, the last is an ellipsis."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def listed(names: Sequence[str]) -> str:
    """Return the first few names, and the number of the others."""
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def signal_name(number: int) -> str:
    """Return a signal's name; real-time signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def write_all(descriptor: int, data: bytes) -> None:
    """Write all data. Raises OSError if the reader is gone, or the disk is full."""
    while data:
        data = data[os.write(descriptor, data) :]


def how_it_ended(status: int) -> str:
    """Describe how a process ended: its exit code, or minus the signal that killed it."""
    if status >= 0:
        return f"ended with exit code {status}"
    return f"was killed by {signal_name(-status)}"


def say(message: str) -> None:
    """Write lines to stderr; if its reader is gone or its disk is full, do nothing.

    Bypasses Python's buffer, like `put_out`: what cannot be written would be written again at exit,
    where a failure replaces the exit code by 120.
    """
    with suppress(OSError):
        write_all(STDERR, f"{message}\n".encode(errors="backslashreplace"))


def put_out(text: str, what: str) -> bool:
    """Write a text to stdout; if that fails, say so and return False. `what` names the text."""
    try:
        write_all(STDOUT, text.encode(errors="backslashreplace"))
    except OSError as error:
        say(f"cluster-trainer: cannot write {what}: {error.strerror}.")
        return False
    return True
