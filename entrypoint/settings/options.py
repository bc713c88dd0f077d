"""The entrypoint's own options: how long to wait, how often to retry, how to log.

Each option is declared once, as a field of `Options`, with its variable, default, accepted values
and purpose. The table of all variables is made from these fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from entrypoint.errors import FINAL_CODES, STOP_CODES, Problem
from entrypoint.settings import forms
from entrypoint.settings.environment_variable import (
    CLUSTER_VARIABLES,
    ENV_FILE,
    TRAINER_PREFIX,
    EnvironmentVariable,
    by_name,
)
from entrypoint.settings.forms import Form

TEXT, JSON = "text", "json"
AWS, GCP, AZURE = "aws", "gcp", "azure"
LONGEST_SECONDS = 10_000_000
LARGEST_EXIT_CODE = 255
FEWEST_TOKEN_CHARACTERS = 16

T = TypeVar("T")


def option(
    name: str, form: Form[T], *, purpose: str, example: str, default: str | None = None
) -> Any:  # noqa: ANN401 -- each field has its own type
    """Declare an option. If it is unset and has no default, its value is None."""
    variable = EnvironmentVariable(
        name=name,
        purpose=purpose,
        accepted=form.accepted,
        example=example,
        default=default,
        # a file with the path of a file makes no sense
        file_form=not name.endswith("_FILE"),
    )
    return dataclasses.field(metadata={"variable": variable, "parse": form.parse})


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that a user may set."""

    rendezvous_timeout_seconds: int = option(
        "RENDEZVOUS_TIMEOUT",
        forms.whole_number(0, LONGEST_SECONDS),
        default="300",
        purpose="Seconds that a meeting of the workers may take: before the command starts, and "
        "before each new ring. 0 skips the meeting before the start.",
        example="900",
    )
    cluster_token: str | None = option(
        "CLUSTER_TOKEN",
        forms.secret(FEWEST_TOKEN_CHARACTERS),
        purpose="A secret that all workers share. It signs the messages with which workers meet "
        "and form a ring, so that no outsider can take part. It does not protect TensorFlow's "
        "own ports (docs/how-to/firewall.md).",
        example="$(openssl rand -hex 16)",
    )
    gpus_per_worker: int | None = option(
        "GPUS_PER_WORKER",
        forms.whole_number(0),
        purpose="How many GPUs each worker must have. A worker with another number does not "
        "start. Otherwise it would train on its CPU.",
        example="1",
    )
    min_workers: int | None = option(
        "MIN_WORKERS",
        forms.whole_number(1),
        purpose="How many workers must remain after a loss for the run to continue: more than "
        "half of all workers. Worker 0 must remain, and more than half of the workers that "
        "trained last. Lost workers rejoin at the end of a call. If unset: all workers. The "
        "value must be the same on every worker. It needs a ring (TRAINER_COLLECTIVES) and a "
        "meeting (RENDEZVOUS_TIMEOUT).",
        example="2",
    )
    workspace_digest: str | None = option(
        "WORKSPACE_DIGEST",
        forms.hexadecimal(8),
        purpose="A digest of the folder at /workspace, set by the tool that copied it. Workers "
        "with different digests have different code, and stop before the command starts.",
        example="4f1c09be",
    )
    regroup_seconds: float = option(
        "REGROUP_SECONDS",
        forms.seconds(),
        default="5",
        purpose="Seconds that worker 0 waits for lost workers before the others continue "
        "without them (MIN_WORKERS): at most half of RENDEZVOUS_TIMEOUT.",
        example="30",
    )
    startup_timeout_seconds: int = option(
        "STARTUP_TIMEOUT",
        forms.whole_number(0, LONGEST_SECONDS),
        default="300",
        purpose="Seconds that TensorFlow may wait for its peers, or that a command may wait for "
        "its neighbours in the ring, once this worker is ready. 0 sets no limit.",
        example="600",
    )
    stop_grace_seconds: float = option(
        "STOP_GRACE_SECONDS",
        forms.seconds(),
        default="8",
        purpose="Seconds that the command may take to end after SIGTERM before it is killed. Keep "
        "it below docker stop's own limit of 10 s.",
        example="55",
    )
    preemption_notice: str | None = option(
        "PREEMPTION_NOTICE",
        forms.choice(AWS, GCP, AZURE),
        purpose="The cloud whose metadata server is asked whether this machine is about to end: "
        "AWS, Google Cloud or Azure. A notice stops this worker as SIGTERM does: all workers save "
        "a checkpoint of the same step. If unset: nothing is asked.",
        example="aws",
    )
    preemption_url: str | None = option(
        "PREEMPTION_URL",
        forms.http_url(),
        purpose="The address of the cloud's metadata server, if it is not http://169.254.169.254.",
        example="http://[fd00:ec2::254]",
    )
    max_restarts: int = option(
        "MAX_RESTARTS",
        forms.whole_number(0),
        default="3",
        purpose="How many times the command is restarted after a crash. After losses of peers, "
        "the limit is this number for each peer. Progress resets both counts (PROGRESS_FILE).",
        example="0",
    )
    progress_file: str | None = option(
        "PROGRESS_FILE",
        forms.path("the path of a file that exists or can be created"),
        purpose="A file that the command touches when it makes progress. If unset: a new file, "
        "whose path the command gets in this variable.",
        example="/runs/progress",
    )
    failure_file: str | None = option(
        "FAILURE_FILE",
        forms.path("the path of a file that exists or can be created"),
        purpose="The entrypoint writes the reason of a failure to this file, in a few lines. "
        "Each worker needs its own file. The file is removed at each start and after a success.",
        example="/runs/failure",
    )
    peer_lost_exit_code: int = option(
        "PEER_LOST_EXIT_CODE",
        forms.whole_number(1, LARGEST_EXIT_CODE, but=(*FINAL_CODES, *STOP_CODES)),
        default="75",
        purpose="The exit code of a worker that lost a peer, for schedulers that retry only some "
        "codes. Kubeflow's ExitCode policy needs 128 or more. 78, 126 and 127 mean that a retry "
        "changes nothing; 130 and 143 mean that the worker was stopped.",
        example="203",
    )
    log_format: str = option(
        "LOG_FORMAT",
        forms.choice(TEXT, JSON),
        default=TEXT,
        purpose="text is for people to read. json writes each line, including the command's, "
        "as an object with time, level, worker and message.",
        example="json",
    )
    verbose: int = option(
        "VERBOSE",
        forms.flag(),
        default="0",
        purpose="1 prints every line of every worker. Otherwise the chief prints the events of "
        "the cluster, and the others print only their own waits, warnings, errors, restarts and "
        "end. The trainer's own lines are all in the file train.log.",
        example="1",
    )
    metrics_port: int | None = option(
        "METRICS_PORT",
        forms.whole_number(1, forms.LARGEST_PORT),
        purpose="Exposes the status as Prometheus metrics: /metrics on this port, on all "
        "addresses of the container. If unset: nothing listens.",
        example="9400",
    )
    requirements_file: str | None = option(
        "REQUIREMENTS_FILE",
        forms.path("the path of a readable requirements file, or none"),
        purpose="A file with the packages that your code needs besides the image's. They are "
        "installed once, into /data/.packages, before the first start. If unset: "
        "requirements.txt in the working directory, if it exists.",
        example="/workspace/requirements-train.txt",
    )


OPTIONS = {field.name: field.metadata for field in dataclasses.fields(Options)}

VARIABLES: Mapping[str, EnvironmentVariable] = {
    **CLUSTER_VARIABLES,
    **by_name(*(declared["variable"] for declared in OPTIONS.values())),
    **by_name(ENV_FILE),
}
"""All variables of the entrypoint, by their names."""


class Texts(Protocol):
    """The texts of variables; `Environ` is one."""

    def get(self, name: str) -> str | None:
        """Return the given text, otherwise the default, otherwise None."""

    def label(self, name: str) -> str:
        """Return the name as a message shows it."""


def read_options(texts: Texts) -> tuple[Options, tuple[Problem, ...]]:
    """Return the options and their problems; an invalid option has its default."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for field, declared in OPTIONS.items():
        variable, parse = declared["variable"], declared["parse"]
        text = texts.get(variable.name)
        values[field] = None if text is None else parse(text)
        if text is not None and values[field] is None:
            problems.append(Problem(texts.label(variable.name), text, variable.accepted))
            values[field] = None if variable.default is None else parse(variable.default)
    return Options(**values), tuple(problems)


def is_ours(name: str) -> bool:
    """Whether the name is a setting of the entrypoint or the trainer."""
    return name in VARIABLES or name.startswith(TRAINER_PREFIX)


def has_file_form(name: str) -> bool:
    """Whether NAME_FILE is read for this name: most of ours, and any of the trainer's."""
    return (
        VARIABLES[name].file_form if name in VARIABLES else is_ours(name) and name != TRAINER_PREFIX
    )


def may_be_empty(name: str) -> bool:
    """Whether the name is an option (ours or the trainer's) that counts as unset when empty."""
    return VARIABLES[name].may_be_empty if name in VARIABLES else is_ours(name)
