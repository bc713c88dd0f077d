"""The contracts: each file says how one system tells a container who its peers are.

A source is a pure function `find(environ, default_port) -> Resolution | None`: None where its
variables are not set, a Resolution without a task where they do not say which worker this is, and
a ConfigurationError with every problem where they are wrong. A new contract is a new file, and a
line in SOURCES.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from entrypoint.cluster import Resolution
from entrypoint.environ import Environ
from entrypoint.sources import tf_config, worker_hosts

Source = Callable[[Environ, int], Resolution | None]

SOURCES: Mapping[str, Source] = {
    "tf_config": tf_config.find,
    "worker_hosts": worker_hosts.find,
}
"""By CLUSTER_SOURCE's name, in the order in which they are believed."""
