"""The contracts: each file reads the cluster from one system's variables or files.

A source's `find` is a pure function: None where its variables are not set, a Resolution without a
task where they do not say which worker this is, and a ConfigurationError with every problem where
they are wrong. Some systems also say things that are settings of ours: their `settings` returns
those by our names. A new contract is a new file, and a line in SOURCES.
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
    """Takes the port for addresses without one, too."""
    needs: tuple[str, ...]
    """The variables that have to be set."""
    also: tuple[str, ...] = ()
    """Other variables that it looks at to find the cluster."""
    settings: tuple[Settings, ...] = ()
    """What it says about our own variables, the first of a name wins; where one of these fails, the
    others still hold."""


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
"""By CLUSTER_SOURCE's name, in the order in which they are believed."""


def variables_of(source: ClusterSource) -> tuple[str, ...]:
    """Return every variable that a source finds the cluster with."""
    return (*source.needs, *source.also)


def with_contract_settings(environ: Environ) -> Environ:
    """Return the environment with what the systems in use say about our own variables.

    That lies below everything that the user gave, readably or not. Never raises: what is wrong is
    among the result's problems, unless CLUSTER_SOURCE leaves that system out.
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
