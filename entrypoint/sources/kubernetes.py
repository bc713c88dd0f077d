"""Kubernetes: Kubeflow Trainer's PET_ variables. An Indexed Job's index is in worker_hosts.py.

Source: pkg/runtime/framework/plugins/torch/torch.go of https://github.com/kubeflow/trainer. It sets
the variables for torchrun. The nodes have the names of the JobSet's pods.
"""

from __future__ import annotations

import re

from entrypoint.cluster.spec import WORKER, Resolution, Task
from entrypoint.errors import ConfigurationError, Problem, all_of
from entrypoint.settings.environ import Environ, whole_number
from entrypoint.sources.formats.host_list import read_workers

NEEDS = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR")
MOST_NODES = 100_000

_FIRST_NODE = re.compile(r"([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)-node-0-0\.\1")


def find(environ: Environ, default_port: int) -> Resolution | None:
    """Return the cluster of a Kubeflow TrainJob. PET_MASTER_PORT is torch's, and is not used."""
    if not any(environ.given(name) for name in NEEDS):
        return None
    job, count, _ = all_of(
        lambda: _job(environ),
        lambda: _count(environ),
        lambda: whole_number(environ, "PET_NODE_RANK", 0, None),
    )
    rank = whole_number(environ, "PET_NODE_RANK", 0, count - 1, f", because PET_NNODES is {count}")
    hosts = (f"{job}-node-0-{number}.{job}" for number in range(count))
    spec = read_workers(environ.label("PET_MASTER_ADDR"), hosts, default_port)
    return Resolution("PET_MASTER_ADDR", spec, Task(WORKER, rank))


def _job(environ: Environ) -> str:
    text = environ.get("PET_MASTER_ADDR")
    match = _FIRST_NODE.fullmatch((text or "").strip())
    if match:
        return match[1]
    accepted = "<job>-node-0-0.<job>, as Kubeflow Trainer names a TrainJob's first node"
    advice = "Set WORKER_HOSTS and CLUSTER_SOURCE=worker_hosts instead."
    raise ConfigurationError([Problem(environ.label("PET_MASTER_ADDR"), text, accepted, advice)])


def _count(environ: Environ) -> int:
    text = environ.get("PET_NNODES") or ""
    if ":" not in text:
        return whole_number(environ, "PET_NNODES", 1, MOST_NODES)
    advice = "An elastic job changes its size while it runs. A TensorFlow cluster cannot."
    problem = Problem(environ.label("PET_NNODES"), text, "a whole number of nodes", advice)
    raise ConfigurationError([problem])
