"""Reads the settings of a cluster on several machines. HOSTS replaces some local settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings import settings as local
from local_cluster.settings.names import OF_ONE_MACHINE
from local_cluster.settings.settings import Settings
from machines.hosts_setting import Host


def read(environ: Mapping[str, str], hosts: Sequence[Host], now: datetime) -> Settings:
    """Read the settings of a run on these machines.

    Raises:
        EndError: some are wrong; the message has a sentence for each problem.
    """
    problems = [
        f"{name}: received {environ[name]!r} with HOSTS; accepted: {instead}."
        for name, instead in OF_ONE_MACHINE.items()
        if environ.get(name)
    ]
    try:
        read_here = local.read({**environ, **dict.fromkeys(OF_ONE_MACHINE, "")}, now)
    except EndError as error:
        raise EndError(error.code, *problems, *error.sentences) from error
    if problems:
        raise EndError(EXIT_CONFIGURATION, *problems)
    return replace(read_here, workers=len(hosts), network="host")


def settled(settings: Settings, hosts: Sequence[Host]) -> dict[str, str]:
    """Return the variables of the final settings, for `resume`."""
    return {
        "COMPOSE_PROJECT_NAME": settings.project,
        "HOSTS": "\n".join(host.text for host in hosts),
        "IMAGE": settings.image,
        "RUN_NAME": settings.run_name,
        "RUNS_DIR": str(settings.runs),
        "WORKSPACE_DIR": settings.workspace,
        "SCRIPT": settings.script,
        "GRACE_SECONDS": str(settings.grace_seconds),
    }
