"""An Indexed Job, its headless Service, and a claim for /runs."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.export.job import Job
from entrypoint.export.pods import VARIABLES, Pod


def fields(job: Job) -> Mapping[str, str]:
    """Return the template's values."""
    hosts = ",".join(f"{job.name}-{i}.{job.name}" for i in range(job.workers))
    pod = Pod(
        container="worker",
        variables={"WORKER_HOSTS": hosts, **job.environment(VARIABLES)},
        indent=6,
        subdomain=job.name,
    )
    return pod.fields(job)
