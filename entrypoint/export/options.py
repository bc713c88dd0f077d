"""Parses the options of `export`, and reports all problems at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from entrypoint.errors import Problem, raise_any
from entrypoint.export.job import Job
from entrypoint.export.kinds.sagemaker import limits_of_sagemaker
from entrypoint.export.places import MACHINE, STORAGE, machine_of, storage_of
from entrypoint.sources import SOURCES, variables_of

DEFAULTS = {
    "--name": "train",
    "--workers": "2",
    "--gpus": "0",
    "--image": "",
    STORAGE: "",
    MACHINE: "",
}
ENV = "--env"
COMMAND = "the command after --"
SAGEMAKER = "sagemaker"
MOST_WORKERS, MOST_GPUS = 1000, 64
NAME = r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?"
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
DECIDED = {"SWARM_TASK_SLOT", *(name for one in SOURCES.values() for name in variables_of(one))}
"""Variables that identify the workers: the file or its scheduler sets them."""


@dataclass(frozen=True)
class _Given:
    """The arguments, separated by option. Their values are not checked yet."""

    values: dict[str, str] = field(default_factory=DEFAULTS.copy)
    variables: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def parse_options(arguments: Sequence[str], kinds: Sequence[str]) -> tuple[str, Job]:
    """Return the kind of file and its job. Raises ConfigurationError with all problems."""
    kind, *rest = arguments or [""]
    end = rest.index("--") if "--" in rest else len(rest)
    given = _take_apart(rest[:end])
    command = tuple(rest[end + 1 :])
    raise_any(_problems(kind, kinds, given, command))
    values = given.values
    gpus = int(values["--gpus"])
    return kind, Job(
        name=values["--name"],
        workers=int(values["--workers"]),
        gpus=gpus,
        image=values["--image"] or f"cluster-trainer:{'gpu' if gpus else 'cpu'}",
        storage=storage_of(kind).value(values[STORAGE]),
        machine=machine_of(kind, has_gpus=gpus > 0).value(values[MACHINE]),
        variables=dict(_split(entry) for entry in given.variables),
        command=command,
    )


def _take_apart(arguments: Sequence[str]) -> _Given:
    given = _Given()
    left = list(arguments)
    while left:
        option, is_joined, value = left.pop(0).partition("=")
        if option not in (*DEFAULTS, ENV):
            accepted = f"{', '.join((*DEFAULTS, ENV))}, and the command after --"
            given.problems.append(Problem("export", option, accepted))
        elif not is_joined and not left:
            given.problems.append(Problem(option, None, "a value after it"))
        else:
            value = value if is_joined else left.pop(0)
            if option == ENV:
                given.variables.append(value)
            else:
                given.values[option] = value
    return given


def _split(entry: str) -> tuple[str, str]:
    name, _, value = entry.partition("=")
    return name, value


def _problems(
    kind: str, kinds: Sequence[str], given: _Given, command: Sequence[str]
) -> Iterator[Problem]:
    if kind not in kinds:
        yield Problem("export", kind or None, f"one of {', '.join(kinds)}")
    yield from given.problems
    values = given.values
    if not re.fullmatch(NAME, values["--name"]):
        accepted = "at most 40 lower-case letters, digits and hyphens; a letter first"
        yield Problem("--name", values["--name"], accepted)
    yield from _count("--workers", values["--workers"], 1, MOST_WORKERS)
    yield from _count("--gpus", values["--gpus"], 0, MOST_GPUS)
    if re.search(r"\s|^-", values["--image"]) or not values["--image"].isprintable():
        yield Problem("--image", values["--image"], "the name of an image, without spaces")
    yield from storage_of(kind).problems(STORAGE, values[STORAGE])
    has_gpus = values["--gpus"] != DEFAULTS["--gpus"]
    yield from machine_of(kind, has_gpus=has_gpus).problems(MACHINE, values[MACHINE])
    for entry in given.variables:
        yield from _variable(entry)
    for word in command:
        if not _is_text(word):
            yield Problem(COMMAND, word, "text in UTF-8")
    if kind == SAGEMAKER:
        yield from limits_of_sagemaker(dict(map(_split, given.variables)), command)


def _count(option: str, text: str, least: int, most: int) -> Iterator[Problem]:
    if not re.fullmatch("[0-9]{1,9}", text) or not least <= int(text) <= most:
        yield Problem(option, text, f"a whole number from {least} to {most}")


def _variable(entry: str) -> Iterator[Problem]:
    name, value = _split(entry)
    if "=" not in entry or not re.fullmatch(VARIABLE, name):
        yield Problem(ENV, name, "NAME=value")  # not the value, which may be a secret
    elif name in DECIDED:
        yield Problem(f"{ENV} {name}", value, "no value: the file names the workers")
    elif not _is_text(value):
        yield Problem(f"{ENV} {name}", value, "text in UTF-8")


def _is_text(text: str) -> bool:
    """Whether the argument was UTF-8. Python reads other bytes as surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in text)
