"""Runs Compose's command line. `Compose` is frozen: no test can change another test's project."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "compose"
CLUSTER = ROOT / "compose.yaml"
UP_SECONDS = 60


@dataclass(frozen=True)
class Compose:
    """A Compose project.

    Attributes:
        project: the project's name, unique on this engine.
        environ: variables for the compose files, which override this process's variables.
        files: the compose files in order.
        command: the command line of Compose.
    """

    project: str
    environ: Mapping[str, str]
    files: tuple[Path, ...] = (CLUSTER,)
    command: tuple[str, ...] = ("docker", "compose")

    def run(self, *arguments: str) -> str:
        """Run one Compose command and return its standard output.

        Raises:
            AssertionError: it failed; the message contains its output.
        """
        files = [part for file in self.files for part in ("--file", str(file))]
        line = [*self.command, "--progress", "quiet", "--project-name", self.project, *files]
        done = subprocess.run(
            [*line, *arguments],
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            timeout=UP_SECONDS,
            check=False,
        )
        if done.returncode:
            message = f"{arguments} ended with {done.returncode}\n{done.stdout}{done.stderr}"
            raise AssertionError(message)
        return done.stdout

    def up(self) -> None:
        """Start the project's services in the background."""
        self.run("up", "--detach")

    def container_id(self, service: str) -> str:
        """Return the id of a service's container, running or ended."""
        return self.run("ps", "--all", "--quiet", service).strip()

    def down(self) -> None:
        """Remove the project's containers, networks and volumes."""
        self.run("down", "--volumes", "--remove-orphans", "--timeout", "0")


def cluster_environ(workers: int) -> dict[str, str]:
    """Return the variables that make compose.yaml start `workers` workers, two or more."""
    return {"COMPOSE_PROFILES": ",".join(f"worker-{index}" for index in range(2, workers))}
