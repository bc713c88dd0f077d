"""A TFJob of Kubeflow's Training Operator 1, and a claim for /runs. It sets TF_CONFIG."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.export.job import Job
from entrypoint.export.pods import VARIABLES, Pod

RETRIED = {"PEER_LOST_EXIT_CODE": "203"}
"""With the restart policy ExitCode, exit code 75 would be final."""


def fields(job: Job) -> Mapping[str, str]:
    """Return the template's values.

    The pods have no readiness probe. A TFJob's Services publish only the addresses of ready pods,
    so workers that are not ready could not meet.
    """
    pod = Pod(
        container="tensorflow",
        variables=job.environment({**VARIABLES, **RETRIED}),
        indent=10,
        is_probed_for_readiness=False,
        restart_policy="",
    )
    return pod.fields(job)
