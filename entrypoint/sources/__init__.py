"""The sources of a cluster: each file reads the cluster from one system's variables or files.

A source's `find` reads the given environment, and SageMaker's also reads files. It returns None if
its variables are not set. The Resolution has no task if the variables do not identify this worker.
If they are wrong, it raises a ConfigurationError with all problems. Some systems also provide
values for our settings: their `settings` returns these by our names. To add a contract, add a file,
a line in SOURCES, and the name to CLUSTER_SOURCE's accepted values
(settings/environment_variable.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from entrypoint.cluster.spec import Resolution
from entrypoint.errors import ConfigurationError, Problem
from entrypoint.settings.environ import Environ, Value
from entrypoint.sources import (
    kubernetes,
    sagemaker,
    sagemaker_settings,
    skypilot,
    slurm,
    tf_config,
    vertex,
    worker_hosts,
)

AUTO, NONE = "auto", "none"


Settings = Callable[[Environ], Mapping[str, Value]]
"""Returns our names -> values, with the system's name as their source."""


@dataclass(frozen=True)
class ClusterSource:
    """One contract."""

    find: Callable[[Environ, int], Resolution | None]
    """Finds the cluster. The number is the default port for addresses without one."""
    needs: tuple[str, ...]
    """The variables that must be set."""
    also: tuple[str, ...] = ()
    """Other variables that it reads to find the cluster."""
    settings: tuple[Settings, ...] = ()
    """Functions that return its values for our variables. The first value of a name wins. If one
    function fails, the others still apply."""


SOURCES: Mapping[str, ClusterSource] = {
    "tf_config": ClusterSource(tf_config.find, tf_config.NEEDS),
    "worker_hosts": ClusterSource(worker_hosts.find, worker_hosts.NEEDS, worker_hosts.ALSO),
    "sagemaker": ClusterSource(
        sagemaker.find, sagemaker.NEEDS, settings=sagemaker_settings.SETTINGS
    ),
    "vertex": ClusterSource(vertex.find, vertex.NEEDS, settings=(vertex.settings,)),
    "skypilot": ClusterSource(skypilot.find, skypilot.NEEDS, skypilot.ALSO, (skypilot.settings,)),
    "slurm": ClusterSource(slurm.find, slurm.NEEDS, slurm.ALSO),
    "kubernetes": ClusterSource(kubernetes.find, kubernetes.NEEDS),
}
"""By CLUSTER_SOURCE's name, in order of precedence."""


def variables_of(source: ClusterSource) -> tuple[str, ...]:
    """Return every variable from which a source reads the cluster."""
    return (*source.needs, *source.also)


def with_contract_settings(environ: Environ) -> Environ:
    """Return the environment with the values that the systems provide for our variables.

    Everything that the user gave takes precedence, readable or not. Never raises: the result has
    the problems, without those of systems that CLUSTER_SOURCE excludes.
    """
    choice = (environ.get("CLUSTER_SOURCE") or AUTO).strip()
    values: dict[str, Value] = {}
    problems: list[Problem] = []
    asked = [(name, settings) for name, source in SOURCES.items() for settings in source.settings]
    for name, settings in asked:
        try:
            values = {**settings(environ), **values}
        except ConfigurationError as error:
            if choice == name or choice not in (NONE, *SOURCES):
                problems += error.problems
    below = {name: value for name, value in values.items() if not environ.given(name)}
    return replace(
        environ,
        values={**below, **environ.values},
        problems=(*environ.problems, *problems),
    )
