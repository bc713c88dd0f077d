"""Runs the trainer's check of its settings as a child process."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from entrypoint.arguments import TRAINER
from entrypoint.errors import EXIT_CONFIGURATION, EXIT_PEER_LOST, Problem, how_it_ended, shortened
from entrypoint.log import Say

CHECK_TIMEOUT_SECONDS = 20.0
"""The limit for `explain` and a refusal. The check takes about a second on an idle machine."""
SAY_SECONDS = 10.0
"""The time between progress lines."""
PAUSES_SECONDS = (1.0, 4.0)
"""The pauses before the retries of a failed check."""


@dataclass(frozen=True)
class Checked:
    """The result of the check."""

    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    """If the check failed: a sentence with the reason."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings that must be the same on all workers: variable -> value."""
    done: str = ""
    """A sentence if this run is already done, otherwise ""."""


class UncheckedError(Exception):
    """The check gave no readable result; the message explains why."""


def check_trainer(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_seconds: float = CHECK_TIMEOUT_SECONDS,
) -> Checked:
    """Return the result of the check, or a note that explains why there is none. Never raises."""
    try:
        return read_answer(_ask(command, environment, timeout_seconds))
    except UncheckedError as error:
        return Checked(notes=(f"The trainer's own settings were not checked: {error}.",))


def answer_of_trainer(
    command: Sequence[str], environment: Mapping[str, str], timeout_seconds: float, say: Say
) -> tuple[int, str]:
    """Return 0 and the check's output, for `read_answer`; or 75 and the reason.

    Without a result it is unknown whether the workers agree. So a failed check is retried. A slow
    check may use the whole time limit, for example while the machine still loads the image. Call
    this in a child process: a signal ends the process and the check.
    """
    deadline = time.monotonic() + timeout_seconds
    pauses = list(PAUSES_SECONDS)
    while True:
        try:
            answer = _ask(command, environment, deadline - time.monotonic(), say)
            read_answer(answer)
        except UncheckedError as error:
            said = f"the trainer's settings could not be checked: {error}"
            if not pauses or time.monotonic() + pauses[0] > deadline:
                return EXIT_PEER_LOST, said
            say("WARNING", f"{said}; trying again in {pauses[0]:g} s")
            time.sleep(pauses.pop(0))
        else:
            return 0, answer


def _ask(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_seconds: float,
    say: Say = lambda *_: None,
) -> str:
    """Run `<trainer> check [flags]` and return its output. Raises UncheckedError."""
    try:
        child = subprocess.Popen(  # noqa: S603 -- the trainer's own command; no shell
            [*TRAINER, "check", *command[len(TRAINER) :]],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        raise UncheckedError(f"the check cannot be run: {error}") from None
    with child:
        output, errors = _outputs(child, timeout_seconds, say)
    if child.returncode not in (0, EXIT_CONFIGURATION):
        last = shortened(errors.decode(errors="replace").strip().rpartition("\n")[2])
        raise UncheckedError(f"the check {how_it_ended(child.returncode)}{last and f': {last}'}")
    return output.decode(errors="replace")


def _outputs(
    child: subprocess.Popen[bytes], timeout_seconds: float, say: Say
) -> tuple[bytes, bytes]:
    """Return the child's output; at the time limit kill it and raise UncheckedError."""
    start = time.monotonic()
    while True:
        waited = time.monotonic() - start
        try:
            return child.communicate(timeout=max(0.0, min(SAY_SECONDS, timeout_seconds - waited)))
        except subprocess.TimeoutExpired:
            if time.monotonic() - start >= timeout_seconds:
                child.kill()
                raise UncheckedError(f"the check took more than {timeout_seconds:.0f} s") from None
            say("INFO", f"checking the trainer's settings for {time.monotonic() - start:.0f} s")


def read_answer(output: str) -> Checked:
    """Parse the JSON object that the check prints. Raises UncheckedError."""
    try:
        said = json.loads(output)
        problems = tuple(_problem(entry) for entry in said["problems"])
        settings = {str(name): str(value) for name, value in said["settings"].items()}
        done = str(said.get("done") or "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UncheckedError("the check printed no valid result") from None
    return Checked(problems, settings=settings, done=done)


def _problem(entry: Mapping[str, object]) -> Problem:
    received = entry["received"]
    return Problem(
        name=str(entry["name"]),
        received=None if received is None else str(received),
        accepted=str(entry["accepted"]),
        advice=str(entry.get("advice") or ""),
    )
