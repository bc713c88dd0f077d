"""The description of an environment variable, and the variables that describe the cluster.

`options.py` declares the options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FILE_SUFFIX = "_FILE"
TRAINER_PREFIX = "TRAINER_"


@dataclass(frozen=True, kw_only=True)
class EnvironmentVariable:
    """One environment variable; docs/reference/variables.md has a row for each."""

    name: str
    purpose: str
    """Its purpose, in sentences."""
    accepted: str
    """The accepted values; error messages show the same text."""
    example: str
    default: str | None = None
    """None: unset unless the user sets it."""
    file_form: bool = True
    """Whether NAME_FILE may name a file that holds the value."""
    may_be_empty: bool = True
    """Whether an empty value counts as unset. Variables that describe the peers may not be empty:
    after a mistake in a template, each worker would silently train alone."""


def by_name(*variables: EnvironmentVariable) -> dict[str, EnvironmentVariable]:
    """Return the variables by their names."""
    return {variable.name: variable for variable in variables}


HOST_LIST = (
    "host:port entries, separated by commas, spaces or newlines; IPv6 in brackets; "
    "the port may be left out"
)

TF_CONFIG = EnvironmentVariable(
    name="TF_CONFIG",
    purpose="The cluster in TensorFlow's own format. It is checked, completed and passed on.",
    accepted='a JSON object with "cluster" and "task"',
    example='{"cluster":{"worker":["10.1.10.58:2222","10.1.10.250:2222"]},'
    '"task":{"type":"worker","index":0}}',
    may_be_empty=False,
)
WORKER_HOSTS = EnvironmentVariable(
    name="WORKER_HOSTS",
    purpose="The addresses of all workers: the same list, in the same order, on every worker.",
    accepted=HOST_LIST,
    example="10.1.10.58:2222,10.1.10.250:2222",
    may_be_empty=False,
)
WORKER_INDEX = EnvironmentVariable(
    name="WORKER_INDEX",
    purpose="This worker's place in the list, counted from 0. If unset: JOB_COMPLETION_INDEX, "
    "SWARM_TASK_SLOT less 1, or the entry with this machine's own name or address.",
    accepted="a whole number from 0, less than the number of workers",
    example="0",
    may_be_empty=False,
)
WORKER_PORT = EnvironmentVariable(
    name="WORKER_PORT",
    purpose="Default port for addresses without one. If you do not set it, SageMaker uses 8890 "
    "and Slurm counts from 8888.",
    accepted="a whole number from 1 to 65535",
    example="12345",
    default="2222",
)
CLUSTER_SOURCE = EnvironmentVariable(
    name="CLUSTER_SOURCE",
    purpose="Where the cluster comes from. auto uses every source that is set, and all of them "
    "must agree. none trains alone, even if a source is set.",
    accepted="auto, tf_config, worker_hosts, sagemaker, vertex, skypilot, slurm, kubernetes or "
    "none",
    example="worker_hosts",
    default="auto",
)
ENV_FILE = EnvironmentVariable(
    name="ENV_FILE",
    purpose="A file of NAME=value lines. Variables of the container take precedence over it. If "
    "unset: .env in the working directory, if it exists.",
    accepted="the path of a readable file",
    example="/workspace/cluster.env",
    file_form=False,
)

CLUSTER_VARIABLES: Mapping[str, EnvironmentVariable] = by_name(
    TF_CONFIG, WORKER_HOSTS, WORKER_INDEX, WORKER_PORT, CLUSTER_SOURCE
)
