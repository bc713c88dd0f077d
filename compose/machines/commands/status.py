"""`status`: the status of each worker on its machine, as a table or as JSON."""

from __future__ import annotations

from typing import Any

from local_cluster import docker_engine
from local_cluster.commands.status import described, look_at, show
from local_cluster.messages import EndError
from machines.cluster_record import Kept
from machines.machine import Machine, at_once, last_line
from machines.own_container import OwnContainer

GONE, UNREACHABLE = "gone", "unreachable"
REMOVED = "its container was removed"
NOT_STARTED = "its start was interrupted, and it has no container; `make resume` starts all again"


def status(kept: Kept, *, as_json: bool) -> int:
    """Print the status of all workers; return the exit code."""
    why_gone = REMOVED if kept.is_started else NOT_STARTED
    found = at_once(lambda one: of_one(one, kept.project, why_gone), kept.containers)
    show(found, as_json=as_json)
    return 0


def of_one(container: OwnContainer, project: str, why_gone: str) -> dict[str, Any]:
    """Return the status of a worker, even if its machine does not answer.

    Args:
        container: the worker's container.
        project: the cluster's name.
        why_gone: the explanation for a worker without a container.
    """
    machine = container.machine
    answered = machine.docker("version", seconds=30)
    if answered.returncode:
        return _unknown(machine, UNREACHABLE, last_line(answered.stderr))
    try:
        workers = docker_engine.Project(project, machine.engine, container.start).workers()
    except EndError as error:  # the machine was lost between two questions
        return _unknown(machine, UNREACHABLE, last_line(str(error)))
    own = [one for one in workers if one.service == machine.service]
    if not own:
        return _unknown(machine, GONE, why_gone)
    return {**look_at(own, machine.engine)[0], "machine": machine.name}


def _unknown(machine: Machine, state: str, why: str) -> dict[str, Any]:
    container = docker_engine.WorkerContainer(machine.service, state, 0, "", "", "-")
    nothing = {**described(container, {}), "up_seconds": None, "memory": None, "cpu_percent": None}
    return {**nothing, "machine": machine.name, "trouble": f"{machine.name}: {why}"}
