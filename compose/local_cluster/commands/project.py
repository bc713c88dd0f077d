"""`down`, `logs` and `ps`: run Compose's commands of these names for all workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NoReturn

from local_cluster.compose import CLUSTER
from local_cluster.docker_engine import NO_DOCKER
from local_cluster.messages import EXIT_ERROR, EndError
from local_cluster.settings.given_variables import ROOT


def down(project: str, environ: Mapping[str, str]) -> NoReturn:
    """Stop and remove the local cluster."""
    _become(project, environ, "down", "--remove-orphans")


def logs(project: str, environ: Mapping[str, str]) -> NoReturn:
    """Follow the local cluster's output."""
    _become(project, environ, "logs", "--follow")


def ps(project: str, environ: Mapping[str, str]) -> NoReturn:
    """List the local cluster's containers."""
    _become(project, environ, "ps", "--all")


def _become(project: str, environ: Mapping[str, str], *arguments: str) -> NoReturn:
    """Replace this process with Compose, which reads .env by itself.

    The file is named, because COMPOSE_FILE in the shell may name another project's. `down` would
    remove that project.

    Raises:
        EndError: there is no docker command.
    """
    os.chdir(ROOT)
    chosen = ["--file", str(CLUSTER), "--project-name", project, "--profile", "*"]
    try:
        os.execvpe("docker", ["docker", "compose", *chosen, *arguments], dict(environ))
    except FileNotFoundError:
        raise EndError(EXIT_ERROR, NO_DOCKER) from None
