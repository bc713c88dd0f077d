"""Two ways to run the entrypoint: in this process with a mapping, or as a child process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from entrypoint.cluster.own_machine import Machine
from entrypoint.errors import ConfigurationError, Problem
from entrypoint.settings.environ import read_environ
from entrypoint.sources.own_task import find_own_task
from entrypoint.sources.resolve import Answer, resolve
from harness.forked import Forked

ROOT = Path(__file__).resolve().parents[3]

Resolve = Callable[..., Answer]
Refuse = Callable[..., list[Problem]]

# As in the image: isolated mode, with our packages on sys.path instead of PYTHONPATH.
START = (
    f"import runpy, sys; sys.path[:0] = [{str(ROOT)!r}]; "
    "runpy.run_module('entrypoint', run_name='__main__', alter_sys=True)"
)
ENTRYPOINT = (sys.executable, "-I", "-c", START)

ONCE = {"PYTHONDONTWRITEBYTECODE": "1", "RENDEZVOUS_TIMEOUT": "0", "MAX_RESTARTS": "0"}


def nobody() -> Machine:
    """Return a machine that is in no list."""
    return Machine("nobody", lambda _: False, lambda _: {})


@pytest.fixture
def answer(tmp_path: Path) -> Resolve:
    """Return a function that resolves an environment."""

    def ask(environ: Mapping[str, str], machine: Machine | None = None) -> Answer:
        variables = read_environ(environ, tmp_path)
        return resolve(variables, lambda found: find_own_task(found, machine or nobody()))

    return ask


@pytest.fixture
def refused(answer: Resolve) -> Refuse:
    """Return a function that returns the problems of an environment."""

    def ask(environ: Mapping[str, str], machine: Machine | None = None) -> list[Problem]:
        with pytest.raises(ConfigurationError) as caught:
            answer(environ, machine)
        return list(caught.value.problems)

    return ask


@dataclass(frozen=True)
class Ended:
    """The result of a child process."""

    code: int
    stdout: str
    stderr: str
    seconds: float


Run = Callable[..., Ended]


@pytest.fixture
def entrypoint() -> tuple[str, ...]:
    """Return the command that starts the entrypoint."""
    return ENTRYPOINT


@pytest.fixture(scope="session")
def forked() -> Iterator[Forked]:
    """Start a server process. Each start of this session is a fork of it."""
    with Forked() as server:
        yield server


@pytest.fixture
def run(tmp_path: Path, forked: Forked) -> Run:
    """Return a function that starts the entrypoint as the image does, in a directory of its own.

    It starts the command once and without the gate. Restarts and the gate have their own tests.
    """
    folder = tmp_path / "workspace"
    folder.mkdir()

    def start(*arguments: str, stdin: str | None = None, **environ: str) -> Ended:
        path = f"{tmp_path}:{os.environ['PATH']}"
        environ = {"PATH": path, "TMPDIR": str(tmp_path)} | ONCE | environ
        begin = time.perf_counter()
        child = forked.start(arguments, environ, folder, stdin, limit_seconds=30)
        seconds = time.perf_counter() - begin
        print(child.stderr)
        return Ended(child.code, child.stdout, child.stderr, seconds)

    return start


@pytest.fixture
def fake_python(tmp_path: Path) -> Callable[[str], None]:
    """Return a function that puts a shell script called `python` first in the child's PATH.

    The trainer's command begins with `python`, so the script stands for the trainer.
    """

    def write(script: str) -> None:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write
