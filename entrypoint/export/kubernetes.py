"""An Indexed Job, its headless Service, and a claim for /runs."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.export.job import Job
from entrypoint.export.quoting import in_yaml, list_in_yaml, literal

FAILURES_PER_WORKER = 6
"""Kubernetes' default for a whole Job. Losing one worker may end the pods of all the others."""

VARIABLES = {
    "FAILURE_FILE": "/dev/termination-log",
    # A node counts as dead after 50 s, and its pods are evicted 30 s later. The pod is replaced
    # when the node is removed, by the cloud or by hand.
    "RENDEZVOUS_TIMEOUT": "1800",
    "STARTUP_TIMEOUT": "1800",
    # Below terminationGracePeriodSeconds.
    "STOP_GRACE_SECONDS": "50",
}


def fields(job: Job) -> Mapping[str, str]:
    """Return the template's values."""
    storage_class, _, size = job.storage.rpartition(":")
    hosts = ",".join(f"{job.name}-{i}.{job.name}" for i in range(job.workers))
    variables = {"WORKER_HOSTS": hosts, **job.environment(VARIABLES)}
    entries = (
        f"- {{name: {name}, value: {in_yaml(literal(value))}}}" for name, value in variables.items()
    )
    return {
        "image": in_yaml(job.image),
        "arguments": list_in_yaml(map(literal, job.command)),
        "variables": f"\n{' ' * 12}".join(entries),
        "failures": str(FAILURES_PER_WORKER * job.workers),
        "limits": f"{{nvidia.com/gpu: {job.gpus}}}" if job.gpus else "{}",
        "size": in_yaml(size),
        "storage_class": f"\n  storageClassName: {in_yaml(storage_class)}" if storage_class else "",
    }
