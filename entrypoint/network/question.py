"""The arguments of the command `network`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from entrypoint.errors import ConfigurationError, Problem
from entrypoint.network.link import KILO
from entrypoint.network.speed_up import Training

PARAMETERS, STEP, JSON = "--parameters", "--step-ms", "--json"
EXAMPLES = {PARAMETERS: "25e6", STEP: "250"}
ACCEPTED = f"{PARAMETERS} NUMBER, {STEP} NUMBER, {JSON}"


@dataclass(frozen=True)
class Question:
    """The output that the user has requested."""

    training: Training | None = None
    """The training whose speed is estimated; None: no estimate."""
    as_json: bool = False


def read_question(arguments: Sequence[str]) -> Question:
    """Read the arguments. Raises ConfigurationError, with all problems."""
    problems: list[Problem] = []
    numbers: dict[str, float] = {}
    as_json = False
    left = _split(arguments)
    for argument in left:
        if argument == JSON:
            as_json = True
        elif argument in EXAMPLES:
            numbers[argument] = _positive(argument, next(left, None), problems.append)
        else:
            problems.append(Problem("network", argument, ACCEPTED))
    if STEP in numbers and PARAMETERS not in numbers:
        accepted = f"the number of the model's parameters, with {STEP}"
        problems.append(Problem(f"network {PARAMETERS}", None, accepted))
    if problems:
        raise ConfigurationError(problems)
    if PARAMETERS not in numbers:
        return Question(None, as_json)
    seconds = numbers[STEP] / KILO if STEP in numbers else None
    return Question(Training(numbers[PARAMETERS], seconds), as_json)


def _split(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments; `--name=value` is two."""
    for argument in arguments:
        name, equals, value = argument.partition("=")
        yield from (name, value) if equals and name.startswith("--") else (argument,)


def _positive(name: str, text: str | None, note: Callable[[Problem], None]) -> float:
    """Return a number above 0; note a problem if there is none."""
    try:
        number = float(text or "")
    except ValueError:
        number = 0.0
    if number > 0 and isfinite(number):
        return number
    note(Problem(f"network {name}", text, f"a number above 0, for example {EXAMPLES[name]}"))
    return 1.0
