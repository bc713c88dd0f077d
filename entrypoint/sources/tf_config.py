"""TensorFlow's own contract: TF_CONFIG. Kubeflow's TFJob and Vertex AI write it too."""

from __future__ import annotations

from entrypoint.cluster.spec import CHIEF, EVALUATOR, WORKER, Resolution
from entrypoint.settings.environ import Environ
from entrypoint.settings.environment_variable import TF_CONFIG
from entrypoint.sources.formats.cluster_document import (
    NO_PARAMETER_SERVERS,
    DocumentForm,
    read_document,
)

NEEDS = ("TF_CONFIG",)

FORM = DocumentForm(
    variable="TF_CONFIG",
    accepted=TF_CONFIG.accepted,
    in_cluster="the types chief (or master) and worker",
    as_task="chief, master, worker or evaluator",
    worker="worker",
    # TensorFlow 1 called the chief "master".
    task_types={"chief": CHIEF, "master": CHIEF, "worker": WORKER, "evaluator": EVALUATOR},
    refused={"ps": NO_PARAMETER_SERVERS.format("ps")},
)


def find(environ: Environ, default_port: int) -> Resolution | None:
    """Return the cluster and the task of TF_CONFIG, checked and completed."""
    text = environ.get("TF_CONFIG")
    if text is None:
        return None
    return read_document(environ.label("TF_CONFIG"), text, FORM, default_port)
