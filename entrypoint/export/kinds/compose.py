"""A Compose file: one service for each worker, on one machine."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.export.job import Job
from entrypoint.export.quoting import in_yaml, lines_in_yaml, list_in_yaml, literal

GRACE = {"STOP_GRACE_SECONDS": "25"}
"""Shorter than the file's stop_grace_period."""


def fields(job: Job) -> Mapping[str, str]:
    """Return the template's values."""
    hosts = ",".join(f"worker-{i}" for i in range(job.workers))
    variables = {"WORKER_HOSTS": hosts, **job.environment(GRACE)}
    return {
        "image": in_yaml(literal(job.image)),
        "command": list_in_yaml(map(literal, job.command)),
        "variables": lines_in_yaml(
            {name: literal(value) for name, value in variables.items()}, indent=2
        ),
        "runs": mount(job),
        "services": "\n".join(_service(job, i) for i in range(job.workers)),
    }


def mount(job: Job) -> str:
    """Return the mount of /runs: the folder --storage, otherwise a volume."""
    kind, source = ("bind", literal(job.storage)) if job.storage else ("volume", "runs")
    return f"{{type: {kind}, source: {in_yaml(source)}, target: /runs}}"


def _service(job: Job, index: int) -> str:
    lines = [
        f"  worker-{index}:",
        "    <<: *worker",
        f"    hostname: worker-{index}",
        f'    environment: {{<<: *environment, WORKER_INDEX: "{index}"}}',
    ]
    if job.gpus:
        # NCCL refuses two workers on one GPU.
        ids = list_in_yaml(str(index * job.gpus + i) for i in range(job.gpus))
        device = f"{{driver: nvidia, device_ids: {ids}, capabilities: [gpu]}}"
        lines.append(f"    deploy: {{resources: {{reservations: {{devices: [{device}]}}}}}}")
    return "\n".join(lines)
