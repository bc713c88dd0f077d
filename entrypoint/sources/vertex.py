"""Google Vertex AI: CLUSTER_SPEC, and the folders of a job in Cloud Storage.

Sources: https://cloud.google.com/vertex-ai/docs/training/distributed-training (CLUSTER_SPEC),
https://cloud.google.com/vertex-ai/docs/training/cloud-storage-file-system (buckets under /gcs), and
`base_output_directory` in google/cloud/aiplatform/v1/custom_job.proto (the folders).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from entrypoint.cluster.spec import CHIEF, EVALUATOR, WORKER, Resolution
from entrypoint.settings.environ import Environ, Value
from entrypoint.sources.formats.cluster_document import (
    NO_PARAMETER_SERVERS,
    DocumentForm,
    read_document,
)

NEEDS = ("CLUSTER_SPEC",)

FORM = DocumentForm(
    variable="CLUSTER_SPEC",
    accepted='a JSON object with "cluster" and "task"',
    in_cluster="workerpool0 (the chief), workerpool1 (workers) and workerpool3 (evaluators)",
    as_task="workerpool0, workerpool1 or workerpool3",
    worker="workerpool1",
    # A machine by itself is "chief": tests/unit/aiplatform/test_cloud_profiler.py of
    # https://github.com/googleapis/python-aiplatform has the two forms.
    task_types={
        "workerpool0": CHIEF,
        "workerpool1": WORKER,
        "workerpool3": EVALUATOR,
        "chief": CHIEF,
    },
    refused={
        "workerpool2": NO_PARAMETER_SERVERS.format("workerpool2, or a Reduction Server"),
    },
)

FOLDERS = {"AIP_MODEL_DIR": "TRAINER_MODEL_DIR", "AIP_CHECKPOINT_DIR": "TRAINER_RUN_DIR"}
"""Vertex AI's variables -> the trainer's."""

_BUCKETS = "gs://"


def find(environ: Environ, default_port: int) -> Resolution | None:
    """Return the cluster and the task of CLUSTER_SPEC."""
    text = environ.get("CLUSTER_SPEC")
    if text is None:
        return None
    found = read_document(environ.label("CLUSTER_SPEC"), text, FORM, default_port)
    return replace(found, extra={}, task_extra={})  # "job" may be long; it is not needed


def settings(environ: Environ) -> Mapping[str, Value]:
    """Return the folders for the model and the results."""
    return {
        ours: Value(_mounted(text), theirs)
        for theirs, ours in FOLDERS.items()
        if (text := environ.get(theirs))
    }


def _mounted(path: str) -> str:
    return f"/gcs/{path.removeprefix(_BUCKETS)}" if path.startswith(_BUCKETS) else path
