"""Runs a part of the test: a command under the entrypoint, with a time limit."""

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
"""The grace period of a command after its limit. Then the entrypoint kills it."""
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
"""The placeholder for the file of results in a command."""


@dataclass(frozen=True)
class Outcome:
    """The end of a part's process.

    Attributes:
        code: the exit code; None if the time limit was over.
        seconds: the time that it ran.
        reason: the entrypoint's reason for a failure.
        log: the last lines that it printed.
        facts: the content of its file of results.
    """

    code: int | None
    seconds: float
    reason: str = ""
    log: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """The folder, variables and time limit with which parts are run.

    Attributes:
        folder: the folder for all files of the test.
        environ: the user's variables.
        limit_seconds: the time limit of parts without their own.
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
        """Run a command under the entrypoint, and return its end.

        Args:
            name: the name of the part, also used for its folder.
            command: the command and its arguments; RESULT among them is the file of results.
            settings: variables, in addition to OWN_SETTINGS.
            limit_seconds: its time limit.
            shows: whether the user sees its output.
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
    """Return the user's variables, overridden by the settings."""
    files = {f"{name}_FILE" for name in settings}
    kept = {name: text for name, text in environ.items() if name not in files}
    trainers = {name: "" for name in kept if name.startswith("TRAINER_")}
    return {"NCCL_DEBUG": "WARN", **kept, **trainers, **settings}


def run_within(
    command: Sequence[str], environ: Mapping[str, str], limit_seconds: float, output: Any
) -> int | None:
    """Run a command to its end, and return its exit code; None if the time limit was over.

    Args:
        command: its words. It gets its own session.
        environ: its variables.
        limit_seconds: its time limit. Then it is stopped, and killed if it does not end.
        output: the file for its output; None: standard error.
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
