"""Signs that a worker without a cluster is one of several: each of them would train alone.

A command may use such variables itself, the pods of an Indexed Job may be independent, and
SkyPilot's setup has the number of nodes. So they are a reason for a warning, not for a refusal.

Sources: "OUTPUT ENVIRONMENT VARIABLES" of https://slurm.schedmd.com/sbatch.html,
https://docs.aws.amazon.com/batch/latest/userguide/job_env_vars.html,
https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html, and those of
settings/framework_variables.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.settings.environ import Environ
from entrypoint.settings.forms import parse_whole_number
from entrypoint.sources import NONE

NAME_THEM = "WORKER_HOSTS and WORKER_INDEX name the workers"
WITH_SRUN = "Start it with srun, which names the workers"
WITH_HOSTS = "WORKER_HOSTS names the workers"

NUMBERS: Mapping[str, str] = {
    "SLURM_NTASKS": WITH_SRUN,
    "SLURM_JOB_NUM_NODES": WITH_SRUN,
    "SKYPILOT_NUM_NODES": "SKYPILOT_NODE_IPS and SKYPILOT_NODE_RANK name them to the container",
    "AWS_BATCH_JOB_NUM_NODES": NAME_THEM,
    "OMPI_COMM_WORLD_SIZE": NAME_THEM,
    "PMI_SIZE": NAME_THEM,
    "WORLD_SIZE": NAME_THEM,
    "JAX_NUM_PROCESSES": NAME_THEM,
    "KERAS_DISTRIBUTION_NUM_PROCESSES": NAME_THEM,
}
"""Variables with the number of processes or machines -> what forms a cluster of them."""
INDICES: Mapping[str, str] = {
    "JOB_COMPLETION_INDEX": WITH_HOSTS,
    "SWARM_TASK_SLOT": WITH_HOSTS,
    "AWS_BATCH_JOB_NODE_INDEX": NAME_THEM,
}
"""Variables with a process's own number, whatever it is -> the same."""
OF_A_BATCH_SCRIPT = "SLURM_JOB_NUM_NODES"
"""A batch script has it beside its SLURM_PROCID, 0. A container with the second alone, and 0, is
srun's first task, to which the list of nodes was not passed on."""


def alone_warning(environ: Environ) -> str:
    """Return a warning for a worker that has found no cluster; "" if nothing speaks of others."""
    if (environ.get("CLUSTER_SOURCE") or "").strip() == NONE:
        return ""
    indices = dict(INDICES)
    if not environ.given(OF_A_BATCH_SCRIPT):
        indices["SLURM_PROCID"] = "Pass on all variables of Slurm (docs/how-to/schedulers.md)"
    for name, advice in {**NUMBERS, **indices}.items():
        text = environ.get(name) or ""
        number = parse_whole_number(text)
        if number is not None and (name in indices or number > 1):
            return (
                f"{name}={text.strip()}, but no variable names the workers: this one trains alone, "
                f"and so do the others. {advice}. CLUSTER_SOURCE=none hides this warning"
            )
    return ""
