"""Asking the trainer, as a child process, what its settings are and what is wrong with them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from entrypoint.arguments import TRAINER
from entrypoint.errors import EXIT_CONFIGURATION, Problem

CHECK_TIMEOUT_SECONDS = 20.0
"""It takes under a second on a free machine; the bound is for one that hangs."""


@dataclass(frozen=True)
class Checked:
    """What the trainer said."""

    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    """A sentence that says why it said nothing, if it did not."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Those that must be the same on all workers: variable -> value."""
    done: str = ""
    """A sentence that says that this run is done already, if it is."""


def check_trainer(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_seconds: float = CHECK_TIMEOUT_SECONDS,
) -> Checked:
    """Run `<trainer> check [flags]` and return its problems. Never raises."""
    check = [*TRAINER, "check", *command[len(TRAINER) :]]
    try:
        child = subprocess.run(  # noqa: S603 -- the trainer's own command; no shell
            check,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _unchecked(f"the check took more than {timeout_seconds:g} s")
    except (OSError, ValueError) as error:
        return _unchecked(f"the check cannot be run: {error}")
    if child.returncode not in (0, EXIT_CONFIGURATION):
        last = child.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return _unchecked(f"the check ended with exit code {child.returncode}: {last}")
    return _parse(child.stdout)


def _parse(output: bytes) -> Checked:
    """Return what the object says that the check prints."""
    try:
        said = json.loads(output)
        problems = tuple(_problem(entry) for entry in said["problems"])
        settings = {str(name): str(value) for name, value in said["settings"].items()}
        done = str(said.get("done") or "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return _unchecked("the check did not print what it should")
    return Checked(problems, settings=settings, done=done)


def _problem(entry: Mapping[str, object]) -> Problem:
    """Return one entry of that list as a problem."""
    received = entry["received"]
    return Problem(
        name=str(entry["name"]),
        received=None if received is None else str(received),
        accepted=str(entry["accepted"]),
        advice=str(entry.get("advice") or ""),
    )


def _unchecked(reason: str) -> Checked:
    """Return the result of a check that did not take place."""
    return Checked(notes=(f"The trainer's own settings were not checked: {reason}.",))
