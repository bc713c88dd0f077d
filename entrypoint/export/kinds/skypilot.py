"""A SkyPilot task: the shell of each node starts one container."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from entrypoint.export.job import Job
from entrypoint.export.quoting import in_yaml

GRACE = {"STOP_GRACE_SECONDS": "25"}
"""SkyPilot documents no grace period; spot machines of the large clouds have 30 s or more."""

CONTRACT = (
    "SKYPILOT_NODE_IPS",
    "SKYPILOT_NODE_RANK",
    "SKYPILOT_NUM_NODES",
    "SKYPILOT_NUM_GPUS_PER_NODE",
    "SKYPILOT_TASK_ID",
)


def fields(job: Job) -> Mapping[str, str]:
    """Return the template's values."""
    accelerators = f"{{accelerators: {in_yaml(f'{job.machine}:{job.gpus}')}}}"
    return {
        "resources": accelerators if job.gpus else "{cpus: 4+}",
        "storage": in_yaml(job.storage),
        "run": _block(_script(job)),
    }


def _script(job: Job) -> str:
    gpus = "--gpus all " if job.gpus else ""
    variables = [f"{name}={value}" for name, value in job.environment(GRACE).items()]
    lines = [
        f'docker run --rm --network host {gpus}--shm-size 1g --user "$(id -u):$(id -g)"',
        "--read-only --tmpfs /tmp --cap-drop ALL --volume /outputs:/runs",
        " ".join(f"--env {name}" for name in CONTRACT),
        *(f"--env {shlex.quote(variable)}" for variable in variables),
        " ".join(map(shlex.quote, [job.image, *job.command])),
    ]
    return " \\\n  ".join(lines) + "\n"


def _block(text: str) -> str:
    """Return a text as a YAML block if it is printable ASCII, otherwise quoted."""
    if all(" " <= char <= "~" or char == "\n" for char in text):
        return "|\n" + "".join(f"  {line}\n" for line in text.splitlines()).rstrip("\n")
    return in_yaml(text)
