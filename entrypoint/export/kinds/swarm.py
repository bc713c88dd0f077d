"""A Swarm stack file: one service, whose replicas are numbered by slot."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.export.job import Job
from entrypoint.export.kinds.compose import GRACE, mount
from entrypoint.export.quoting import (
    in_yaml,
    lines_in_yaml,
    list_in_yaml,
    literal,
    literal_in_swarm,
)

GPU = (
    "\n      resources: {reservations: {generic_resources: "
    '[{discrete_resource_spec: {kind: "NVIDIA-GPU", value: %d}}]}}'
)
"""Nodes must advertise their GPUs under this name: ADVERTISED."""
ADVERTISED = """\
# Each node must advertise its GPUs as NVIDIA-GPU. Otherwise Swarm places no worker. In its
# /etc/docker/daemon.json, with the UUIDs that `nvidia-smi --list-gpus` prints:
#   "default-runtime": "nvidia", "node-generic-resources": ["NVIDIA-GPU=GPU-45cbf7b3-..."]
#
"""


def fields(job: Job) -> Mapping[str, str]:
    """Return the template's values."""
    hosts = ",".join(f"slot-{i + 1}" for i in range(job.workers))
    variables = {"WORKER_HOSTS": hosts, **job.environment(GRACE)}
    return {
        "image": in_yaml(literal(job.image)),
        "command": list_in_yaml(map(literal, job.command)),
        "variables": lines_in_yaml(
            {name: literal_in_swarm(value) for name, value in variables.items()}, indent=6
        ),
        "runs": mount(job),
        "gpus": GPU % job.gpus if job.gpus else "",
        "advertised": ADVERTISED if job.gpus else "",
    }
