"""The entrypoint's own options: how long to wait, how often to try again, how to log.

Each is declared once, as a field of `Options`: its variable, what it accepts, its default and what
it does. The table of all variables is made from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from entrypoint.errors import Problem
from entrypoint.settings import forms
from entrypoint.settings.forms import Form
from entrypoint.settings.variables import (
    CLUSTER_VARIABLES,
    ENV_FILE,
    TRAINER_PREFIX,
    Variable,
    by_name,
)

TEXT, JSON = "text", "json"
LONGEST_SECONDS = 10_000_000
LARGEST_EXIT_CODE = 255
FEWEST_TOKEN_CHARACTERS = 16

T = TypeVar("T")


def option(
    name: str, form: Form[T], *, purpose: str, example: str, default: str | None = None
) -> Any:  # noqa: ANN401 -- the field has the type that stands beside it
    """Declare an option; without a default it is None where it is not given."""
    variable = Variable(
        name=name,
        purpose=purpose,
        accepted=form.accepted,
        example=example,
        default=default,
        # A file that names a file would be one too many.
        file_form=not name.endswith("_FILE"),
    )
    return dataclasses.field(metadata={"variable": variable, "parse": form.parse})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person may choose."""

    rendezvous_timeout_seconds: int = option(
        "RENDEZVOUS_TIMEOUT",
        forms.whole_number(0, LONGEST_SECONDS),
        default="300",
        purpose="How many seconds the workers of a cluster may take to find each other before the "
        "command starts, and again before it gets another ring; 0 starts it without looking.",
        example="900",
    )
    cluster_token: str | None = option(
        "CLUSTER_TOKEN",
        forms.secret(FEWEST_TOKEN_CHARACTERS),
        purpose="A secret that all workers share: the messages by which they meet before the "
        "command starts, or are connected to a ring, are signed with it, and nobody else can take "
        "part in that or disturb it. It does not protect TensorFlow's own ports afterwards "
        "(docs/operations.md).",
        example="$(openssl rand -hex 16)",
    )
    gpus_per_worker: int | None = option(
        "GPUS_PER_WORKER",
        forms.whole_number(0),
        purpose="How many GPUs every worker must have; one with another number refuses to start "
        "instead of training on the CPU.",
        example="1",
    )
    min_workers: int | None = option(
        "MIN_WORKERS",
        forms.whole_number(1),
        purpose="With how many workers a run goes on when others are lost: worker 0 among them, "
        "more than half of all, and more than half of those who trained last. Who was lost is "
        "taken in again at the end of a call. If it is not given, all are waited for. The same on "
        "every worker, and only where the workers are a ring (TRAINER_COLLECTIVES) and meet at the "
        "gate (RENDEZVOUS_TIMEOUT).",
        example="2",
    )
    regroup_seconds: float = option(
        "REGROUP_SECONDS",
        forms.seconds(),
        default="5",
        purpose="How long worker 0 waits at the gate for lost workers before it goes on without "
        "them (MIN_WORKERS): at most half of RENDEZVOUS_TIMEOUT.",
        example="30",
    )
    startup_timeout_seconds: int = option(
        "STARTUP_TIMEOUT",
        forms.whole_number(0, LONGEST_SECONDS),
        default="300",
        purpose="How many seconds TensorFlow may wait for its peers to join, once its server has "
        "opened this worker's port, or a command for its neighbours in the ring; 0 is no limit.",
        example="600",
    )
    stop_grace_seconds: float = option(
        "STOP_GRACE_SECONDS",
        forms.seconds(),
        default="8",
        purpose="How long the command may take to end after SIGTERM before it is killed; less than "
        "docker stop's own 10 s.",
        example="55",
    )
    max_restarts: int = option(
        "MAX_RESTARTS",
        forms.whole_number(0),
        default="3",
        purpose="How often the command is restarted after a crash, and for each peer after its "
        "loss (75); the count begins again at each progress (PROGRESS_FILE).",
        example="0",
    )
    progress_file: str | None = option(
        "PROGRESS_FILE",
        forms.path("the path of a file that may be created"),
        purpose="A file that the command touches to say that it got further. If it is not given, "
        "the command gets the path of a new one under this name.",
        example="/runs/progress",
    )
    failure_file: str | None = option(
        "FAILURE_FILE",
        forms.path("the path of a file that may be created"),
        purpose="Where the reason of a failure is written, in a few lines.",
        example="/runs/failure",
    )
    peer_lost_exit_code: int = option(
        "PEER_LOST_EXIT_CODE",
        forms.whole_number(1, LARGEST_EXIT_CODE),
        default="75",
        purpose="The exit code of a worker whose peer was lost or never came, for schedulers that "
        "retry only some: Kubeflow's ExitCode policy wants 128 or more.",
        example="203",
    )
    log_format: str = option(
        "LOG_FORMAT",
        forms.choice(TEXT, JSON),
        default=TEXT,
        purpose="text is for people; json makes every line, the command's too, an object with "
        "time, level, worker and message.",
        example="json",
    )
    verbose: int = option(
        "VERBOSE",
        forms.flag(),
        default="0",
        purpose="1 lets every worker say all that it has to say. Else the chief speaks for all: "
        "another worker's trainer says on its screen what concerns itself, and the rest in its "
        "train.log alone.",
        example="1",
    )
    metrics_port: int | None = option(
        "METRICS_PORT",
        forms.whole_number(1, forms.LARGEST_PORT),
        purpose="Serves what status says to Prometheus, at /metrics on this port of all of the "
        "container's addresses. Not given: nothing listens.",
        example="9400",
    )
    requirements_file: str | None = option(
        "REQUIREMENTS_FILE",
        forms.path("the path of a readable requirements file, or none"),
        purpose="The packages that your code needs besides the image's: installed once, into "
        "/data/.packages, before the first start. If it is not given: requirements.txt in the "
        "working directory, if there is one.",
        example="/workspace/requirements-train.txt",
    )


OPTIONS = {field.name: field.metadata for field in dataclasses.fields(Options)}

VARIABLES: Mapping[str, Variable] = {
    **CLUSTER_VARIABLES,
    **by_name(*(declared["variable"] for declared in OPTIONS.values())),
    **by_name(ENV_FILE),
}
"""All variables of the entrypoint, by their names."""


class Texts(Protocol):
    """Where the texts of variables are found; `Environ` is one."""

    def get(self, name: str) -> str | None:
        """Return the text that was given, else the default, else None."""

    def label(self, name: str) -> str:
        """Return the name as a message shows it."""


def read_options(texts: Texts) -> tuple[Options, tuple[Problem, ...]]:
    """Return the options and what is wrong with them; a wrong one has its default."""
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
    """Whether a variable of this name is a setting of ours or the trainer's."""
    return name in VARIABLES or name.startswith(TRAINER_PREFIX)


def has_file_form(name: str) -> bool:
    """Whether NAME_FILE is read for this name: ours, and any variable of the trainer's."""
    return (
        VARIABLES[name].file_form if name in VARIABLES else is_ours(name) and name != TRAINER_PREFIX
    )


def may_be_empty(name: str) -> bool:
    """Whether this is an option of ours or the trainer's, which counts as unset when empty."""
    return VARIABLES[name].may_be_empty if name in VARIABLES else is_ours(name)
