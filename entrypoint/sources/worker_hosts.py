"""The project's own contract: WORKER_HOSTS, and an index, also from Kubernetes or Swarm.

A Swarm stack file sets `SWARM_TASK_SLOT: "{{.Task.Slot}}"`; slots count from 1:
https://docs.docker.com/reference/cli/docker/service/create/#create-services-using-templates
An Indexed Job's: https://kubernetes.io/docs/tasks/job/indexed-parallel-processing-static/
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.cluster.spec import WORKER, ClusterSpec, Resolution, Task
from entrypoint.errors import ConfigurationError, Problem, all_of
from entrypoint.settings.environ import Environ, whole_number
from entrypoint.settings.environment_variable import HOST_LIST
from entrypoint.sources.formats.host_list import read_workers

NEEDS = ("WORKER_HOSTS",)
INDICES: Mapping[str, int] = {"WORKER_INDEX": 0, "JOB_COMPLETION_INDEX": 0, "SWARM_TASK_SLOT": 1}
"""The variables with an index -> the number of the first entry."""
ALSO = tuple(INDICES)


def find(environ: Environ, default_port: int) -> Resolution | None:
    """Return the cluster of WORKER_HOSTS; without an index its task is unknown."""
    text = environ.get("WORKER_HOSTS")
    if text is None:
        return None
    entries = split_entries(text)
    spec, number = all_of(
        lambda: _spec(environ.label("WORKER_HOSTS"), entries, default_port),
        lambda: find_index(environ, len(entries)),
    )
    return Resolution("WORKER_HOSTS", spec, None if number is None else Task(WORKER, number))


def split_entries(text: str) -> list[str]:
    """Return the entries of a list; an entry between two commas may be empty."""
    if not text.strip():
        return []
    return [entry for piece in text.split(",") for entry in piece.split() or [""]]


def _spec(name: str, entries: list[str], default_port: int) -> ClusterSpec:
    if not entries:
        advice = "It is set but empty. For a single worker, leave it out."
        raise ConfigurationError([Problem(name, "", HOST_LIST, advice)])
    return read_workers(name, entries, default_port)


def find_index(environ: Environ, count: int) -> int | None:
    """Return this worker's position in the list, from 0; None if no variable gives it.

    Raises ConfigurationError for an index that is not in the list, and for two that disagree.
    """
    by_hand = (environ.get("CLUSTER_SOURCE") or "").strip() == "worker_hosts"
    names = [name for name in INDICES if name in environ.values]
    if by_hand and "WORKER_INDEX" in names:
        names = ["WORKER_INDEX"]  # an Indexed Job with several clusters numbers all of its pods
    indices: dict[str, int] = {}
    problems: list[Problem] = []
    for name in names:
        try:
            indices[name] = _read_index(environ, name, count)
        except ConfigurationError as error:
            problems += error.problems
    if len(set(indices.values())) > 1:
        problems.append(_contradiction(environ, indices))
    if problems:
        raise ConfigurationError(problems)
    return next(iter(indices.values()), None)


def _read_index(environ: Environ, name: str, count: int) -> int:
    """Return the index, from 0; `count` is 0 if the list's length is unknown."""
    first = INDICES[name]
    if count == 0:
        return whole_number(environ, name, first, None) - first
    workers = "1 worker" if count == 1 else f"{count} workers"
    why = f", because WORKER_HOSTS names {workers}"
    return whole_number(environ, name, first, first + count - 1, why) - first


def _contradiction(environ: Environ, indices: Mapping[str, int]) -> Problem:
    meant = [f"{environ.get(name)} (entry {index})" for name, index in indices.items()]
    advice = "With CLUSTER_SOURCE=worker_hosts, WORKER_INDEX wins."
    return Problem(" and ".join(indices), "; ".join(meant), "the same entry of the list", advice)
