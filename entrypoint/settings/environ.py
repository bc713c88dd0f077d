"""Reads the environment: variables, `VAR_FILE` forms and `.env`. Collects all problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from entrypoint.errors import ConfigurationError, Problem
from entrypoint.settings.environment_variable import FILE_SUFFIX
from entrypoint.settings.files import READABLE_FILE, UnreadableFileError, read_dotenv, read_text
from entrypoint.settings.forms import parse_whole_number
from entrypoint.settings.options import VARIABLES, has_file_form, is_ours, may_be_empty
from entrypoint.settings.unrelated_variables import is_service_link

ENVIRONMENT = "environment"
DEFAULT = "default"


@dataclass(frozen=True)
class Value:
    """A variable's text and its source."""

    text: str
    source: str


@dataclass(frozen=True)
class Environ:
    """All variables, with `.env` and the `VAR_FILE` forms applied."""

    values: Mapping[str, Value]
    broken: frozenset[str] = frozenset()
    """Names that were given, but whose value could not be read."""
    problems: tuple[Problem, ...] = ()
    service_links: Mapping[str, str] = field(default_factory=dict)
    """Variables that have the name of a setting, but that Kubernetes set for a Service: ignored."""
    root: Path = Path("/")
    """The root of the file system, for files with fixed paths of a scheduler."""

    def get(self, name: str) -> str | None:
        """Return the given text, otherwise the table's default, otherwise None."""
        if name in self.values:
            return self.values[name].text
        return VARIABLES[name].default if name in VARIABLES else None

    def given(self, name: str) -> bool:
        """Whether the variable was given, readable or not."""
        return name in self.values or name in self.broken

    def texts(self) -> dict[str, str]:
        """Return the variables for the command, without TF_CONFIG and CLUSTER_TOKEN."""
        hidden = ("TF_CONFIG", "CLUSTER_TOKEN")  # added later; only for the gate
        return {name: value.text for name, value in self.values.items() if name not in hidden}

    def label(self, name: str) -> str:
        """Return the name as a message shows it, with the file that it came from."""
        value = self.values.get(name)
        if value is None or value.source == ENVIRONMENT:
            return name
        return f"{name} ({value.source})"


def read_environ(environ: Mapping[str, str], directory: Path, *, root: Path = Path("/")) -> Environ:
    """Read all variables; `.env` and relative paths are resolved in the directory.

    Never raises: the result has the problems.
    """
    dotenv = read_dotenv(environ.get("ENV_FILE"), directory)
    below = _read_layer(dotenv.values, dotenv.source, directory)
    links = {
        name: text
        for name, text in environ.items()
        if is_ours(name) and is_service_link(name, text)
    }
    given = {name: text for name, text in environ.items() if name not in links}
    above = _read_layer(given, ENVIRONMENT, directory)
    return Environ(
        values={**below.values, **above.values},
        broken=below.broken | above.broken,
        problems=(*dotenv.problems, *below.problems, *above.problems),
        service_links=links,
        root=root,
    )


def _read_layer(texts: Mapping[str, str], source: str, directory: Path) -> Environ:
    """Return one layer's variables; the content of each X_FILE becomes X."""
    given = {
        name: text
        for name, text in texts.items()
        if text or not may_be_empty(_target(name) or name)
    }
    values, broken, problems = {}, set(), []
    for name, text in given.items():
        target = _target(name)
        if target is None:
            values[name] = Value(text, source)
        elif target in given:
            broken.add(target)
            problems.append(_both(target, given[target], text))
        else:
            try:
                values[target] = Value(read_text(directory / text), f"file {text}")
            except UnreadableFileError as error:
                broken.add(target)
                problems.append(Problem(name, text, READABLE_FILE, str(error)))
    return Environ(values, frozenset(broken), tuple(problems))


def _target(name: str) -> str | None:
    """Return X for X_FILE; None if the name is not the file form of one of our variables."""
    target = name.removesuffix(FILE_SUFFIX)
    return target if target != name and has_file_form(target) else None


def _both(name: str, text: str, path: str) -> Problem:
    received = f"{text} and {path}"
    return Problem(f"{name} and {name}{FILE_SUFFIX}", received, "one of the two, not both")


def whole_number(environ: Environ, name: str, low: int, high: int | None, why: str = "") -> int:
    """Return a variable as a number from low to high (None: no bound).

    `why` is appended to the accepted range in the message. Raises ConfigurationError.
    """
    number = parse_whole_number(environ.get(name) or "")
    if number is None or number < low or (high is not None and number > high):
        bounds = f"a whole number from {low}" if high is None else f"{low} to {high}"
        problem = Problem(environ.label(name), environ.get(name), f"{bounds}{why}")
        raise ConfigurationError([problem])
    return number
