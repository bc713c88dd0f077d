"""`export KIND [options] [-- command]`: prints a file for a scheduler, and starts nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from entrypoint.errors import EXIT_CONFIGURATION, EXIT_NOT_WRITTEN, ConfigurationError, put_out, say
from entrypoint.export.job import Job
from entrypoint.export.kinds import (
    compose,
    jobset,
    kubernetes,
    sagemaker,
    skypilot,
    slurm,
    swarm,
    tfjob,
    trainjob,
    vertex,
)
from entrypoint.export.options import parse_options
from entrypoint.export.templating import fill_in

KINDS: Mapping[str, tuple[str, Callable[[Job], Mapping[str, str]]]] = {
    "compose": ("compose.yaml", compose.fields),
    "jobset": ("jobset.yaml", jobset.fields),
    "kubernetes": ("kubernetes.yaml", kubernetes.fields),
    "sagemaker": ("sagemaker.yaml", sagemaker.fields),
    "skypilot": ("skypilot.yaml", skypilot.fields),
    "slurm": ("slurm.sbatch", slurm.fields),
    "swarm": ("swarm.yaml", swarm.fields),
    "tfjob": ("tfjob.yaml", tfjob.fields),
    "trainjob": ("trainjob.yaml", trainjob.fields),
    "vertex": ("vertex.yaml", vertex.fields),
}
"""Each kind's template, and the function that returns the template's values."""


def export(arguments: Sequence[str]) -> int:
    """Print the file that the arguments describe; return the exit code."""
    try:
        kind, job = parse_options(arguments, tuple(KINDS))
    except ConfigurationError as error:
        say(str(error))
        return EXIT_CONFIGURATION
    return 0 if put_out(filled_in(kind, job), "the file") else EXIT_NOT_WRITTEN


def filled_in(kind: str, job: Job) -> str:
    """Return the file of this kind for a job."""
    template, fields = KINDS[kind]
    common = {"name": job.name, "workers": str(job.workers), "about": job.about}
    return fill_in(template, **common, **fields(job))
