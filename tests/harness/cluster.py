"""Whole runs of a local cluster through compose/cluster.py, like those of `make up-local`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.compose import FOLDER
from harness.waiting import wait_until

PROGRAM = (sys.executable, str(FOLDER / "cluster.py"))
UP = (*PROGRAM, "up")
STOP = (*PROGRAM, "stop")
RESUME = (*PROGRAM, "resume")
STATUS = (*PROGRAM, "status")
RUN_NAME = "test"
STOP_SECONDS = 60


@dataclass(frozen=True)
class ClusterRun:
    """A cluster that has ended.

    Attributes:
        code: the exit code of `up`.
        output: its output.
        folder: the run's folder on the host, with a folder for each worker.
    """

    code: int
    output: str
    folder: Path

    @property
    def workers(self) -> list[Path]:
        """The workers' folders, in the order of their indices."""
        return sorted(self.folder.glob("worker-*"))

    def results(self) -> list[dict[str, Any]]:
        """Return each worker's result.json."""
        return [json.loads((worker / "result.json").read_text()) for worker in self.workers]

    def metrics(self) -> list[dict[str, Any]]:
        """Return worker 0's metrics, one dictionary for each epoch."""
        lines = (self.folder / "worker-0/metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def raise_unless_done(self) -> "ClusterRun":
        """Return this run if it ended with 0; otherwise fail with its output."""
        assert self.code == 0, self.output
        return self


@dataclass(frozen=True)
class RunningCluster:
    """A cluster in progress: the process of `up` and the file it prints to.

    Attributes:
        process: the process of `up`.
        output_file: the file with its output.
        folder: the run's folder.
        place: the variables by which other commands find it.
    """

    process: subprocess.Popen[bytes]
    output_file: Path
    folder: Path
    place: Mapping[str, str]

    def output(self) -> str:
        """Return its output so far."""
        return self.output_file.read_text(errors="replace")

    def wait_for_text(self, text: str, timeout_seconds: float) -> None:
        """Wait until `text` has been printed.

        Raises:
            WaitError: it was not printed in time.
        """
        printed = lambda: text in self.output()  # noqa: E731
        wait_until(printed, timeout_seconds, f"`up` prints {text!r}", self.output)

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to `up` only, as `kill` does."""
        self.process.send_signal(number)

    def press_ctrl_c(self) -> None:
        """Send SIGINT to `up` and its foreground processes, as a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def stop(self) -> None:
        """End the cluster if it still runs."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(STOP_SECONDS)

    def ask(self, command: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run STOP, RESUME or STATUS meanwhile, as a user does in another terminal."""
        return subprocess.run(
            [*command, *arguments],
            env={**os.environ, **self.place},
            capture_output=True,
            text=True,
            timeout=STOP_SECONDS,
            check=False,
        )

    def resume(self, **environ: object) -> "RunningCluster":
        """Resume its run after its end, with its first settings and `environ`."""
        settings = {name: str(value) for name, value in environ.items()}
        return resume_cluster(self.folder.parent.parent, {**self.place, **settings})

    def end(self, timeout_seconds: float) -> ClusterRun:
        """Wait until `up` ends, and return its result; after the limit, stop it and fail."""
        try:
            code = self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            message = f"the cluster still ran after {timeout_seconds} s\n{self.output()}"
            raise AssertionError(message) from None
        return ClusterRun(code, self.output(), self.folder)


def start_cluster(folder: Path, environ: Mapping[str, str]) -> RunningCluster:
    """Start `up` with its results in `folder`/runs; `environ` overrides this process's variables.

    Data sets and user code are in folders, not in volumes, so that no volume is left behind.
    """
    for name in ("runs", "data", "workspace"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    settings = {
        "RUNS_DIR": str(folder / "runs"),
        "DATA_DIR": str(folder / "data"),
        "WORKSPACE_DIR": str(folder / "workspace"),
        "RUN_NAME": RUN_NAME,
        "VERBOSE": "1",  # tests need the lines of every worker; test_screen.py tests the default
        **environ,
    }
    return _begin(UP, folder, settings)


def resume_cluster(folder: Path, environ: Mapping[str, str]) -> RunningCluster:
    """Resume the newest run that `start_cluster` has started in the same folder."""
    return _begin(RESUME, folder, {"RUNS_DIR": str(folder / "runs"), "VERBOSE": "1", **environ})


def _begin(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> RunningCluster:
    number = len(list(folder.glob("*.log")))
    output_file = folder / f"{command[-1]}-{number}.log"
    with output_file.open("wb") as output:
        process = subprocess.Popen(
            # If a shell started pytest in the background, pytest and its children ignore SIGINT.
            ["env", "--default-signal=INT", *command],
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    place = {name: environ[name] for name in ("RUNS_DIR", "COMPOSE_PROJECT_NAME")}
    return RunningCluster(process, output_file, folder / "runs" / RUN_NAME, place)
