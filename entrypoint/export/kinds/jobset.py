"""A JobSet with one Indexed Job, and a claim for /runs. The JobSet names the pods."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.export.job import Job
from entrypoint.export.pods import VARIABLES, Pod


def fields(job: Job) -> Mapping[str, str]:
    """Return the template's values."""
    hosts = ",".join(f"{job.name}-worker-0-{i}.{job.name}" for i in range(job.workers))
    pod = Pod(
        container="worker",
        variables={"WORKER_HOSTS": hosts, **job.environment(VARIABLES)},
        indent=14,
    )
    return pod.fields(job)
