"""Reads the settings of a cluster from variables, and reports all problems at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from local_cluster.settings import mounts
from local_cluster.settings.given_variables import (
    DEFAULT_IMAGE,
    GivenVariables,
    User,
    overlays_of,
    runs_folder,
    services,
)
from local_cluster.settings.names import unknown_settings
from local_cluster.settings.run_record import state_folder
from local_cluster.shared_folder import SharedFolder

OF_DOCKER_SECONDS = 2
"""How much earlier than Docker the entrypoint kills its command, so that it can say so."""


@dataclass(frozen=True)
class Settings:
    """A cluster, and one of its runs.

    Attributes:
        workers: the number of workers.
        network: "bridge" or "host".
        image: the workers' image.
        run_name: the run's folder below `runs`.
        grace_seconds: the time that workers may take to end.
        project: the Compose project.
        runs: the folder of all runs.
        data: the folder of data sets, or "" for the project's own volume.
        workspace: the folder of your own code, or "".
        script: the script that workers run instead of the trainer, a path of the host, or "".
        overlays: additional compose files.
        user: the user to whom the results belong.
    """

    workers: int
    network: str
    image: str
    run_name: str
    grace_seconds: int
    project: str
    runs: Path
    data: str
    workspace: str
    script: str
    overlays: tuple[str, ...]
    user: User

    @property
    def stop_grace_seconds(self) -> int:
        """STOP_GRACE_SECONDS of the workers: Docker kills a container after `grace_seconds`."""
        return self.grace_seconds - OF_DOCKER_SECONDS

    @property
    def services(self) -> list[str]:
        """The workers' names, in the order of their indices."""
        return services(self.workers)

    @property
    def mounted(self) -> str:
        """The folder to mount at /workspace, or "": the script's folder, unless one is given."""
        return self.workspace or os.path.dirname(self.script)  # noqa: PTH120 -- "" stays ""

    @property
    def folder(self) -> SharedFolder:
        """The folder of the run's results, which the workers write."""
        return SharedFolder(self.runs, self.run_name)


def read(environ: Mapping[str, str], now: datetime) -> Settings:
    """Read the settings of a run.

    Raises:
        EndError: some are wrong; the message has a sentence for each.
    """
    given = GivenVariables(environ)
    network = given.matching("NETWORK", "bridge|host", "bridge", "bridge or host")
    settings = Settings(
        workers=given.workers(network),
        network=network,
        image=environ.get("IMAGE") or DEFAULT_IMAGE,
        run_name=given.run_name(f"{now:%Y%m%d-%H%M%S}"),
        grace_seconds=int(
            given.matching(
                "GRACE_SECONDS", "[3-9]|[1-9][0-9]+", "10", "a whole number of seconds from 3"
            )
        ),
        project=given.project(),
        runs=runs_folder(environ),
        data=given.folder("DATA_DIR"),
        workspace=given.folder("WORKSPACE_DIR"),
        script=given.script(),
        overlays=given.overlays(),
        user=given.user(),
    )
    refused = mounts.problems(
        {"RUNS_DIR": settings.runs, **({"DATA_DIR": Path(settings.data)} if settings.data else {})},
        {
            "RUNS_DIR": str(settings.runs),
            "DATA_DIR": settings.data,
            "WORKSPACE_DIR": settings.workspace,
            "SCRIPT": settings.script,
        },
        overlays_of(environ),
        state_folder(environ),
    )
    given.raise_problems([*unknown_settings(environ), *refused])
    return settings
