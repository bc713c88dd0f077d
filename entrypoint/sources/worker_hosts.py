"""The project's own contract: WORKER_HOSTS, WORKER_INDEX; Kubernetes or Swarm may count instead."""

from __future__ import annotations

from entrypoint.cluster.spec import WORKER, ClusterSpec, Resolution, Task
from entrypoint.errors import ConfigurationError, Problem, all_of
from entrypoint.settings.environ import Environ
from entrypoint.settings.variables import HOST_LIST
from entrypoint.sources.formats import index
from entrypoint.sources.formats.host_list import read_workers
from entrypoint.sources.formats.index import IndexVariable
from entrypoint.sources.kubernetes import COMPLETION_INDEX
from entrypoint.sources.swarm import TASK_SLOT

NEEDS = ("WORKER_HOSTS",)
ALSO = ("WORKER_INDEX", COMPLETION_INDEX.name, TASK_SLOT.name)

_WORKER_INDEX = IndexVariable("WORKER_INDEX", first=0)


def find(environ: Environ, default_port: int) -> Resolution | None:
    """Return the cluster of WORKER_HOSTS; without any index its task is not known yet."""
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
    """Return the entries of a list; between two commas that may be an empty one."""
    if not text.strip():
        return []
    return [entry for piece in text.split(",") for entry in piece.split() or [""]]


def _spec(name: str, entries: list[str], default_port: int) -> ClusterSpec:
    """Return the cluster of the entries; raise ConfigurationError."""
    if not entries:
        advice = "It is set but empty. For a single worker, leave it out."
        raise ConfigurationError([Problem(name, "", HOST_LIST, advice)])
    return read_workers(name, entries, default_port)


def find_index(environ: Environ, count: int) -> int | None:
    """Return which entry this worker is, None if nothing says so; raise ConfigurationError.

    `count` is the number of workers, 0 where that is not known.
    """
    by_hand = (environ.get("CLUSTER_SOURCE") or "").strip() == "worker_hosts"
    if by_hand and "WORKER_INDEX" in environ.values:
        variables = [_WORKER_INDEX]  # an Indexed Job of several clusters counts all of its pods
    else:
        variables = [_WORKER_INDEX, COMPLETION_INDEX, TASK_SLOT]
    return index.find_index(environ, variables, "WORKER_HOSTS", count)
