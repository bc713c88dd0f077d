"""Problems of a configuration, and the one way to report them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

EXIT_PEER_LOST = 75  # EX_TEMPFAIL of sysexits.h: trying again may well help
EXIT_NOBODY_CAME = 76  # of the gate's process alone: 75 for the container, or 0
EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h: trying again changes nothing
EXIT_NOT_EXECUTABLE = 126  # as a shell does
EXIT_NOT_FOUND = 127  # as a shell does

STDOUT = 1
"""The file descriptor."""

LONGEST_SHOWN = 200
"""Characters of a received value that a message shows."""

MOST_LISTED = 5
"""Names that a sentence lists."""

MOST_SHOWN = 50
"""Problems that a message shows: a wrong file read as a host list has thousands."""

HIDDEN = "***"
"""What is shown of a secret."""

SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "KEY")
"""A variable whose name has one of them holds a secret."""


@dataclass(frozen=True)
class Problem:
    """One thing that the user has to change."""

    name: str
    """The variable, with its place or flag in addition: `TF_CONFIG cluster.worker[1]`."""
    received: str | None
    """The value as it was given; None where there was none."""
    accepted: str
    """What would have been right."""
    advice: str = ""
    """A sentence that helps further, or nothing."""


@dataclass(frozen=True)
class OpenProblem(Problem):
    """A problem that may be temporary: a name server, say, has not answered yet."""


class ConfigurationError(Exception):
    """The user's configuration is wrong; carries all problems that were found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(render(self.problems))

    @property
    def exit_code(self) -> int:
        """78, or 75 if every problem may be temporary."""
        return EXIT_PEER_LOST if _are_open(self.problems) else EXIT_CONFIGURATION


def all_of(*steps: Callable[[], Any]) -> tuple[Any, ...]:
    """Return what each step returns; raise one ConfigurationError with the problems of all."""
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
    """Return the message: each problem on a line of its own, then sentences of no problem."""
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
    """Return a problem as one line, its value hidden if the name says that it is a secret."""
    received = HIDDEN if problem.received and is_secret(problem.name) else problem.received
    value = "nothing" if received is None else f'"{shortened(escaped(received))}"'
    name = shortened(escaped(problem.name))
    line = f"{name}: received {value}; accepted: {escaped(problem.accepted)}."
    return f"{line} {escaped(problem.advice)}".rstrip()


def is_secret(name: str) -> bool:
    """Whether the name says that its value must not be shown."""
    return any(word in name.upper() for word in SECRET_WORDS)


def escaped(text: str) -> str:
    """Return text that is safe on one line of a terminal: no control characters or surrogates."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else ascii(char)[1:-1]  # \n, \x1b, \ud800
        for char in text
    )


def shortened(text: str, longest: int = LONGEST_SHOWN) -> str:
    """Return at most `longest` characters, the last an ellipsis where something was left out."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def listed(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def signal_name(number: int) -> str:
    """Return a signal's name; real-time signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it; raise OSError where the reader has gone away, or the disk is full."""
    while data:
        data = data[os.write(descriptor, data) :]


def how_it_ended(status: int) -> str:
    """Return how a process ended, in words: its exit code, or minus the signal that killed it."""
    if status >= 0:
        return f"ended with exit code {status}"
    return f"was killed by {signal_name(-status)}"


def say(message: str) -> None:
    """Write lines to stderr; a stderr that is closed or full is no reason to stop."""
    try:
        print(message, file=sys.stderr, flush=True)  # noqa: T201 -- what it is for
    except OSError:
        return
