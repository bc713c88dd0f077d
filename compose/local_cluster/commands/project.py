"""`down`, `logs` and `ps`: run Compose's commands of these names for all workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NoReturn

from local_cluster.docker_engine import NO_DOCKER
from local_cluster.messages import EXIT_ERROR, EndError
from local_cluster.settings.given_variables import ROOT

COMPOSE = ("docker", "compose", "--profile", "*")


def down(environ: Mapping[str, str]) -> NoReturn:
    """Stop and remove the local cluster."""
    _become(environ, "down", "--remove-orphans")


def logs(environ: Mapping[str, str]) -> NoReturn:
    """Follow the local cluster's output."""
    _become(environ, "logs", "--follow")


def ps(environ: Mapping[str, str]) -> NoReturn:
    """List the local cluster's containers."""
    _become(environ, "ps", "--all")


def _become(environ: Mapping[str, str], *arguments: str) -> NoReturn:
    """Replace this process with Compose, which reads compose.yaml and .env by itself.

    Raises:
        EndError: there is no docker command.
    """
    os.chdir(ROOT)
    try:
        os.execvpe(COMPOSE[0], [*COMPOSE, *arguments], dict(environ))
    except FileNotFoundError:
        raise EndError(EXIT_ERROR, NO_DOCKER) from None
