"""A TrainJob of Kubeflow Trainer 2, the runtime that it refers to, and a claim for /runs.

The runtime holds the settings of the platform. The TrainJob holds the image, the command and the
user's variables. With the runtime's torch policy, Kubeflow sets PET_NNODES, PET_NODE_RANK and
PET_MASTER_ADDR (`sources/kubernetes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.export.job import Job
from entrypoint.export.pods import VARIABLES, Pod, arguments, variables
from entrypoint.export.quoting import in_yaml


def fields(job: Job) -> Mapping[str, str]:
    """Return the template's values."""
    pod = Pod(container="node", variables=VARIABLES, indent=18, has_arguments=False)
    return {
        **pod.fields(job),
        "image": in_yaml(job.image),
        "arguments": arguments(job),
        "variables": variables(job.environment({}), indent=6),
    }
