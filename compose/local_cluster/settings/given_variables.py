"""Reads the given variables one at a time, and collects the problems of each."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings.names import MAX_WORKERS

ROOT = Path(__file__).parents[3]
DEFAULT_PROJECT = "cluster-trainer"
DEFAULT_IMAGE = "cluster-trainer:cpu"
LATEST = "latest"
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
HOST_NETWORK_WORKERS = 2
QUOTES = "'\""


@dataclass(frozen=True)
class User:
    """The user to whom the results belong."""

    uid: str
    gid: str


def services(workers: int) -> list[str]:
    """Return the names of this number of workers."""
    return [f"worker-{index}" for index in range(workers)]


def project(environ: Mapping[str, str]) -> str:
    """Return the Compose project of the cluster."""
    return environ.get("COMPOSE_PROJECT_NAME") or DEFAULT_PROJECT


def runs_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of all runs, which may not exist."""
    return Path(os.path.abspath(environ.get("RUNS_DIR") or ROOT / "runs"))  # noqa: PTH100 -- a link stays


def overlays_of(environ: Mapping[str, str]) -> list[str]:
    """Return the additional compose files, as given.

    A shell's quotes may be around a path. A quote may also be part of a path, so the existing files
    decide between the readings.
    """
    text = environ.get("OVERLAYS", "")
    words, quoted = text.split(), _without_quotes(text)
    for files in (words, quoted, [text]):
        if all(os.path.isfile(file) for file in files):  # noqa: PTH113 -- of any length
            return files
    return quoted if any(word[0] in QUOTES for word in words) else words


def _without_quotes(text: str) -> list[str]:
    """Return the words of a text as a shell reads them."""
    try:
        return shlex.split(text)
    except ValueError:  # a single quote
        return text.split()


class GivenVariables:
    """The given variables and their problems. An empty variable counts as unset."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._problems: list[str] = []
        self._environ = environ

    def raise_problems(self, others: Sequence[str] = ()) -> None:
        """Refuse the variables if there are problems.

        Raises:
            EndError: there are problems; the message has a sentence for each.
        """
        if others or self._problems:
            raise EndError(EXIT_CONFIGURATION, *others, *self._problems)

    def user(self) -> User:
        """Return the user to whom the results belong; with sudo, the user who called it."""
        own = {"UID": os.getuid(), "GID": os.getgid()}
        uid, gid = (
            self.matching(
                f"RUN_{kind}",
                "[0-9]+",
                self._environ.get(f"SUDO_{kind}") or str(number),
                "a number",
            )
            for kind, number in own.items()
        )
        return User(uid, gid)

    def matching(self, name: str, pattern: str, default: str, accepted: str) -> str:
        """Return a variable that matches, otherwise the default."""
        text = self._environ.get(name) or default
        if re.fullmatch(pattern, text, re.ASCII):
            return text
        return self._refuse(name, text, accepted, default)

    def workers(self, network: str) -> int:
        """Return the number of workers."""
        workers = int(
            self.matching("WORKERS", f"[1-{MAX_WORKERS}]", "2", f"a number from 1 to {MAX_WORKERS}")
        )
        if network == "host" and workers > HOST_NETWORK_WORKERS:
            self._refuse("WORKERS", str(workers), "1 or 2, because NETWORK=host has two", "")
        return workers

    def project(self) -> str:
        """Return the Compose project, whose name Compose and Docker must accept."""
        accepted = "lower-case letters, digits, dashes and underscores; a letter or digit first"
        pattern = "[a-z0-9][a-z0-9_-]*"
        return self.matching("COMPOSE_PROJECT_NAME", pattern, DEFAULT_PROJECT, accepted)

    def run_name(self, default: str) -> str:
        """Return the run's name."""
        accepted = f'letters, digits, dots, dashes and underscores, not "{LATEST}"'
        pattern = f"(?!{LATEST}$){RUN_NAME.pattern}"
        return self.matching("RUN_NAME", pattern, default, accepted)

    def folder(self, name: str) -> str:
        """Return a folder's absolute path, because Compose would resolve it beside its files."""
        text = self._environ.get(name, "")
        if not text:
            return ""
        if not Path(text).is_dir():
            return self._refuse(name, text, "an existing folder", "")
        return os.path.abspath(text)  # noqa: PTH100 -- a link stays a link

    def script(self) -> str:
        """Return a Python file's absolute path; it must be in WORKSPACE_DIR, if that is set."""
        text = self._environ.get("SCRIPT", "")
        if not text:
            return ""
        if not text.endswith(".py") or not Path(text).is_file():
            return self._refuse("SCRIPT", text, "an existing Python file", "")
        script = os.path.abspath(text)  # noqa: PTH100 -- a link stays a link
        workspace = self._environ.get("WORKSPACE_DIR", "")
        if workspace and Path(os.path.abspath(workspace)) not in Path(script).parents:  # noqa: PTH100
            return self._refuse("SCRIPT", text, f'a file in WORKSPACE_DIR, "{workspace}"', "")
        return script

    def overlays(self) -> tuple[str, ...]:
        """Return the absolute paths of the additional compose files."""
        files = overlays_of(self._environ)
        for file in files:
            if not Path(file).is_file():
                accepted = "existing compose files, with quotes around a path that has a space"
                self._refuse("OVERLAYS", file, accepted, "")
        return tuple(str(Path(file).resolve()) for file in files)

    def _refuse(self, name: str, received: str, accepted: str, instead: str) -> str:
        self._problems.append(f'{name}: received "{received}"; accepted: {accepted}.')
        return instead
