"""Chooses the compose files of a cluster, and sets their variables."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local_cluster import docker_engine
from local_cluster.settings.given_variables import ROOT
from local_cluster.settings.settings import Settings

CLUSTER = ROOT / "compose.yaml"
HOST_NETWORK = ROOT / "compose/host-network.yaml"
GPU = ROOT / "compose/gpu.yaml"
SCRIPT = ROOT / "compose/script.yaml"
PORT = 2222
FIRST_LOCALHOST_PORT = 20000


def files(settings: Settings, *, gpus: bool) -> list[Path]:
    """Return the compose files of a cluster; later ones override earlier ones.

    Args:
        settings: the cluster's settings.
        gpus: whether the workers get GPUs.
    """
    chosen = [CLUSTER]
    if settings.network == "host":
        chosen.append(HOST_NETWORK)
    if gpus:
        chosen.append(GPU)
    if settings.script:
        chosen.append(SCRIPT)
    return chosen + [Path(file) for file in settings.overlays]


def settled(settings: Settings) -> dict[str, str]:
    """Return the variables of the final settings."""
    return {
        "COMPOSE_PROJECT_NAME": settings.project,
        "WORKERS": str(settings.workers),
        "NETWORK": settings.network,
        "IMAGE": settings.image,
        "RUN_NAME": settings.run_name,
        "RUNS_DIR": str(settings.runs),
        "DATA_DIR": settings.data,
        "WORKSPACE_DIR": settings.workspace,
        "SCRIPT": settings.script,
        "OVERLAYS": shlex.join(settings.overlays),
        "GRACE_SECONDS": str(settings.grace_seconds),
        "RUN_UID": settings.user.uid,
        "RUN_GID": settings.user.gid,
    }


def variables(
    settings: Settings, environ: Mapping[str, str], *, processors: int, process: str
) -> dict[str, str]:
    """Return the variables that the compose files read.

    Args:
        settings: the cluster's settings.
        environ: all other variables.
        processors: the number of this machine's processors.
        process: the identity of the process that runs the cluster.
    """
    hosts = [f"{service}:{PORT}" for service in settings.services]
    if settings.network == "host":
        hosts = [f"localhost:{FIRST_LOCALHOST_PORT + index}" for index in range(settings.workers)]
    chosen = {**environ, **settled(settings), "UP_PID": process}
    if settings.script:
        chosen["WORKSPACE_DIR"] = settings.mounted
        chosen["SCRIPT"] = os.path.relpath(settings.script, settings.mounted)
    chosen["CLUSTER_HOSTS"] = ",".join(hosts)
    chosen["COMPOSE_PROFILES"] = ",".join(settings.services)
    # If the workers' thread pools compete for cores, that costs more time than the network.
    threads = max(1, processors // settings.workers)
    chosen["TRAINER_THREADS"] = environ.get("TRAINER_THREADS") or str(threads)
    grace = str(settings.stop_grace_seconds)
    chosen["STOP_GRACE_SECONDS"] = environ.get("STOP_GRACE_SECONDS") or grace
    if settings.workers == 1:  # it gets all GPUs; several workers get one each (gpu.yaml)
        chosen["WORKER_0_GPUS"] = environ.get("WORKER_0_GPUS") or "all"
    return chosen


@dataclass(frozen=True)
class Compose:
    """Compose with its files and variables, for one cluster."""

    files: tuple[Path, ...]
    environ: Mapping[str, str]

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a Compose command in a session that Ctrl-C does not reach."""
        chosen = [part for file in self.files for part in ("--file", str(file))]
        line = ["compose", "--progress", "quiet", *chosen, *arguments]
        return docker_engine.start(line, environ=self.environ)

    def run(self, *arguments: str) -> int:
        """Run a Compose command to its end and return its exit code."""
        return self.start(*arguments).wait()
