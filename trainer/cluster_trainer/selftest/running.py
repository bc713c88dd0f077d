"""Runs a part of the test: a command under the entrypoint, in a process with a time limit."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENTRYPOINT = (sys.executable, "-I", "-m", "entrypoint")
STOP_SECONDS = 2
"""The time that a command may take to end when its limit is over; the entrypoint kills it then."""
KILL_SECONDS = STOP_SECONDS + 8
LOG_LINES = 30
OWN_SETTINGS = {
    "CLUSTER_TRAINER_ENGINE": "on",
    "LOG_FORMAT": "text",
    "MAX_RESTARTS": "0",
    "METRICS_PORT": "",
    "MIN_WORKERS": "",
    "PROGRESS_FILE": "",
    "REQUIREMENTS_FILE": "none",
    "STARTUP_TIMEOUT": "60",
    "STOP_GRACE_SECONDS": str(STOP_SECONDS),
    "VERBOSE": "1",
}
"""Settings of each part, in place of the user's; none of the user's TRAINER_ settings applies."""
RESULT = "RESULT"
"""Stands for the file of results in a command."""


@dataclass(frozen=True)
class Outcome:
    """How a part's process has ended.

    Attributes:
        code: its exit code; None: the limit was over.
        seconds: how long it ran.
        reason: the entrypoint's reason for a failure.
        log: the last lines that it printed.
        facts: what it wrote to its file of results.
    """

    code: int | None
    seconds: float
    reason: str = ""
    log: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """The place where parts are run.

    Attributes:
        folder: for all files of the test.
        environ: the variables that the user has given.
        limit_seconds: how long a part may take if it has no limit of its own.
    """

    folder: Path
    environ: Mapping[str, str]
    limit_seconds: float

    def run(
        self,
        name: str,
        command: Sequence[str],
        settings: Mapping[str, str],
        limit_seconds: float,
        *,
        shows: bool = False,
    ) -> Outcome:
        """Run a command under the entrypoint, and return how it has ended.

        Args:
            name: of the part, which names its folder.
            command: the command and its arguments; RESULT among them is the file of results.
            settings: variables, in addition to OWN_SETTINGS.
            limit_seconds: how long it may take.
            shows: whether the user sees what it prints meanwhile.
        """
        folder = self.folder / name.replace("/", "").replace(" ", "-")
        folder.mkdir()
        failure, result = folder / "failure", folder / "result.json"
        settings = {
            **OWN_SETTINGS,
            "FAILURE_FILE": str(failure),
            "TRAINER_RUN_DIR": str(folder / "runs"),
            **settings,
        }
        words = [str(result) if word == RESULT else word for word in command]
        output = folder / "output"
        begin = time.monotonic()
        with output.open("wb") as file:
            code = run_within(
                [*ENTRYPOINT, *words],
                _with(self.environ, settings),
                limit_seconds,
                None if shows else file,
            )
        lines = output.read_text(errors="replace").splitlines()
        return Outcome(
            code,
            time.monotonic() - begin,
            _first_line(failure),
            "\n".join(lines[-LOG_LINES:]),
            _facts(result),
        )


def _with(environ: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the user's variables with the settings in place of theirs."""
    files = {f"{name}_FILE" for name in settings}
    kept = {name: text for name, text in environ.items() if name not in files}
    trainers = {name: "" for name in kept if name.startswith("TRAINER_")}
    return {"NCCL_DEBUG": "WARN", **kept, **trainers, **settings}


def run_within(
    command: Sequence[str], environ: Mapping[str, str], limit_seconds: float, output: Any
) -> int | None:
    """Run a command to its end, and return its exit code; None if the limit was over.

    Args:
        command: it leads a session of its own.
        environ: its variables.
        limit_seconds: after so many it is stopped, and killed if it does not end.
        output: the file that it prints to; None: standard error.
    """
    process = subprocess.Popen(  # noqa: S603  the test's own parts
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if output is None else output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait(limit_seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(KILL_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _first_line(file: Path) -> str:
    try:
        return file.read_text(errors="replace").partition("\n")[0]
    except OSError:
        return ""


def _facts(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
