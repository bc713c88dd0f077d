"""`stop`: stops all workers, or one of them, at a checkpoint."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from local_cluster import docker_engine
from local_cluster.messages import EXIT_CONFIGURATION, EXIT_ERROR, EndError, say
from local_cluster.process_identity import has_ended
from local_cluster.settings.given_variables import project

END_SECONDS = 30
LOOK_AGAIN_SECONDS = 0.1
IS_RUNNING = "{{.State.Running}}"


def stop(environ: Mapping[str, str], worker: str = "") -> int:
    """Ask the workers, or one of them by its number, to stop, and wait until they have ended.

    Raises:
        EndError: no worker is running, or the given one is not.
    """
    cluster = docker_engine.Project(project(environ))
    running = cluster.workers("--filter", "status=running")
    if not running:
        raise EndError(EXIT_ERROR, f"no worker of the project {cluster.name} is running here.")
    if worker:
        _stop_one(worker, running)
    else:
        _stop_all(cluster, running)
    return 0


def chosen(
    worker: str, among: Sequence[docker_engine.WorkerContainer], accepted: str
) -> docker_engine.WorkerContainer:
    """Return the worker with this number.

    Raises:
        EndError: there is none; the message lists the accepted numbers.
    """
    for one in among:
        if one.service == f"worker-{worker}":
            return one
    numbers = ", ".join(one.service.rpartition("-")[2] for one in among)
    refused = f'WORKER: received "{worker}"; accepted: {accepted}: {numbers}.'
    raise EndError(EXIT_CONFIGURATION, refused)


def _stop_one(worker: str, running: Sequence[docker_engine.WorkerContainer]) -> None:
    one = chosen(worker, running, "the number of a running worker")
    say(f"asking {one.service} to stop")
    ended = docker_engine.ask("stop", one.container)
    if ended.returncode and docker_engine.inspected(one.container, IS_RUNNING) == "true":
        raise EndError(EXIT_ERROR, ended.stderr.strip())
    say(f"{one.service} has ended; `make resume WORKER={worker}` starts it again")


def _stop_all(
    cluster: docker_engine.Project, running: Sequence[docker_engine.WorkerContainer]
) -> None:
    up = running[0].up
    say(f"asking {', '.join(one.service for one in running)} to stop")
    ended = docker_engine.ask("stop", *(one.container for one in running))
    # `up` may remove them before `docker stop` has noticed their end.
    if ended.returncode and cluster.running():
        raise EndError(EXIT_ERROR, ended.stderr.strip())
    has_up = bool(re.match("[0-9]", up))
    if has_up:
        _wait_for_end(up, cluster)
    say("all have ended" + ("; `make resume` resumes the run" if has_up else ""))


def _wait_for_end(process: str, cluster: docker_engine.Project) -> None:
    """Wait for the process of `up`, which removes the network.

    Otherwise a new cluster could lose its own network.

    If `up` has just started a killed worker again, that worker is stopped, too.
    """
    limit = time.monotonic() + END_SECONDS
    while not has_ended(process):
        if time.monotonic() > limit:
            number = process.partition("@")[0]
            told = f"all workers have ended, but the process that runs them ({number}) has not."
            raise EndError(EXIT_ERROR, told)
        time.sleep(LOOK_AGAIN_SECONDS)
        if late := cluster.running():
            docker_engine.ask("stop", *late)
            # The time for `up` counts from the end of the last worker.
            limit = time.monotonic() + END_SECONDS
