"""A request of Amazon SageMaker's CreateTrainingJob, for the AWS command line.

Source of the fields and their limits: the service's model (2017-07-24) in botocore 1.44.8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from entrypoint.errors import Problem
from entrypoint.export.job import Job
from entrypoint.export.quoting import in_yaml, lines_in_yaml, list_in_yaml

GRACE = {"STOP_GRACE_SECONDS": "100"}
"""Shorter than the 120 s between SageMaker's SIGTERM and SIGKILL."""
CHECKPOINTS = "/opt/ml/checkpoints"
LONGEST_VALUE, LONGEST_WORD, MOST_WORDS = 512, 256, 100


def fields(job: Job) -> Mapping[str, str]:
    """Return the template's values."""
    arguments = f"\n  ContainerArguments: {list_in_yaml(job.command)}" if job.command else ""
    return {
        "image": in_yaml(job.image),
        "arguments": arguments,
        "machine": in_yaml(job.machine),
        "storage": in_yaml(job.storage),
        "checkpoints": in_yaml(f"{job.storage}/{job.name}/checkpoints"),
        "folder": in_yaml(CHECKPOINTS),
        "variables": lines_in_yaml(job.environment(GRACE, CHECKPOINTS), indent=2),
    }


def limits_of_sagemaker(variables: Mapping[str, str], command: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each value that exceeds SageMaker's limits."""
    for name, value in variables.items():
        if len(value) > LONGEST_VALUE:
            yield Problem(f"--env {name}", value, f"at most {LONGEST_VALUE} characters (SageMaker)")
    place = "the command after --"
    if len(command) > MOST_WORDS:
        yield Problem(place, f"{len(command)} words", f"at most {MOST_WORDS} words (SageMaker)")
    for word in command:
        if len(word) > LONGEST_WORD or "\n" in word:
            accepted = f"words of at most {LONGEST_WORD} characters on one line (SageMaker)"
            yield Problem(place, word, accepted)
