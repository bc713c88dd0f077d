"""A Slurm batch script: srun starts one container on each node."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from entrypoint.export.job import Job

GRACE = {"STOP_GRACE_SECONDS": "25"}
"""Shorter than Slurm's KillWait, which is 30 s by default."""


def fields(job: Job) -> Mapping[str, str]:
    """Return the template's values."""
    variables = [f"{name}={value}" for name, value in job.environment(GRACE).items()]
    command = [job.image, *job.command]
    return {
        "runs": shlex.quote(job.storage) if job.storage else '"$HOME/runs"',
        "gpus_per_node": f"\n#SBATCH --gpus-per-node={job.gpus}" if job.gpus else "",
        "gpus": f" --gpus {job.gpus}" if job.gpus else "",
        "variables": " \\\n  ".join(f"--env {shlex.quote(variable)}" for variable in variables),
        "command": " ".join(map(shlex.quote, command)),
    }
