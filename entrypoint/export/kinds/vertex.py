"""The configuration of a custom job of Google Vertex AI, for gcloud.

Source of the fields: aiplatform.v1 of Google's discovery documents (google-api-python-client
2.202.0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from entrypoint.export.job import Job
from entrypoint.export.quoting import in_yaml, list_in_yaml

OTHERS = """
  - replicaCount: %d
    machineSpec: *machine
    containerSpec: *container"""


def fields(job: Job) -> Mapping[str, str]:
    """Return the template's values. Vertex AI itself sets the folders of the run and the model."""
    machine, _, accelerator = job.machine.partition(":")
    of_gpus = f", acceleratorType: {accelerator}, acceleratorCount: {job.gpus}" if job.gpus else ""
    entries = (
        f"- {{name: {name}, value: {in_yaml(_literal(value))}}}"
        for name, value in job.environment({}, "").items()
    )
    lines = "\n        ".join(entries)
    return {
        "machine": f"{{machineType: {in_yaml(machine)}{of_gpus}}}",
        "image": in_yaml(job.image),
        "arguments": f"\n      args: {list_in_yaml(job.command)}" if job.command else "",
        "variables": f"\n      env:\n        {lines}" if lines else "",
        "others": OTHERS % (job.workers - 1) if job.workers > 1 else "",
        "storage": in_yaml(f"{job.storage}/{job.name}"),
    }


def _literal(text: str) -> str:
    """Double `$` before `$` or `(`, so that Vertex AI expands no variables."""
    return re.sub(r"\$(?=[$(])", "$$", text)
