"""The table of the entrypoint's own variables: what reads, explains and documents them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FILE_SUFFIX = "_FILE"
TRAINER_PREFIX = "TRAINER_"
HIDDEN = "***"
SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "KEY")


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One environment variable; docs/environment.md has a line for each."""

    name: str
    purpose: str
    """What it does, a sentence."""
    accepted: str
    """What it may be; error messages say the same."""
    example: str
    default: str | None = None
    """None: unset unless the user sets it."""
    file_form: bool = True
    """Whether NAME_FILE may name a file that holds the value."""
    may_be_empty: bool = True
    """An empty option counts as unset. What says who the peers are may not be empty: a template
    that filled in nothing would otherwise train alone, and nobody would notice."""


HOST_LIST = (
    "host:port entries, separated by commas, spaces or newlines; IPv6 in brackets; "
    "the port may be left out"
)

TF_CONFIG = Variable(
    name="TF_CONFIG",
    purpose="The cluster in TensorFlow's own form: checked, completed and passed on.",
    accepted='a JSON object with "cluster" and "task"',
    example='{"cluster":{"worker":["10.1.10.58:2222","10.1.10.250:2222"]},'
    '"task":{"type":"worker","index":0}}',
    may_be_empty=False,
)
WORKER_HOSTS = Variable(
    name="WORKER_HOSTS",
    purpose="The addresses of all workers, the same list in the same order on each of them.",
    accepted=HOST_LIST,
    example="10.1.10.58:2222,10.1.10.250:2222",
    may_be_empty=False,
)
WORKER_INDEX = Variable(
    name="WORKER_INDEX",
    purpose="Which entry of the list this worker is, from 0; if it is not given: "
    "JOB_COMPLETION_INDEX, SWARM_TASK_SLOT less 1, or the entry that is this machine's own name or "
    "address.",
    accepted="a whole number from 0, less than the number of workers",
    example="0",
    may_be_empty=False,
)
WORKER_PORT = Variable(
    name="WORKER_PORT",
    purpose="The port of the addresses that name none. On SageMaker it is 8890, and Slurm counts "
    "from 8888, unless this is set.",
    accepted="a whole number from 1 to 65535",
    example="12345",
    default="2222",
)
CLUSTER_SOURCE = Variable(
    name="CLUSTER_SOURCE",
    purpose="Where the cluster is taken from; auto takes what is set, and what is set has to "
    "agree; none is one worker, whatever is set.",
    accepted="auto, tf_config, worker_hosts, sagemaker, vertex, skypilot, slurm, kubernetes or "
    "none",
    example="worker_hosts",
    default="auto",
)
ENV_FILE = Variable(
    name="ENV_FILE",
    purpose="A file of NAME=value lines to read; variables that are really set win. Without it: "
    ".env in the working directory, if there is one.",
    accepted="the path of a readable file",
    example="/workspace/cluster.env",
    file_form=False,
)
REQUIREMENTS_FILE = Variable(
    name="REQUIREMENTS_FILE",
    purpose="The packages that your code needs besides the image's: installed once, into "
    "/data/.packages, before the first start. Without it: requirements.txt in the working "
    "directory, if there is one.",
    accepted="the path of a readable requirements file, or none",
    example="/workspace/requirements-train.txt",
    file_form=False,
)

RENDEZVOUS_TIMEOUT = Variable(
    name="RENDEZVOUS_TIMEOUT",
    purpose="How many seconds the workers of a cluster may take to find each other before the "
    "command starts; 0 starts it without looking.",
    accepted="a whole number from 0",
    example="900",
    default="300",
)
CLUSTER_TOKEN = Variable(
    name="CLUSTER_TOKEN",
    purpose="A secret that all workers share: messages between their entrypoints are then signed "
    "with it, and nobody else can take part or disturb.",
    accepted="at least 8 characters, the same on every worker",
    example="$(openssl rand -hex 16)",
)
GPUS_PER_WORKER = Variable(
    name="GPUS_PER_WORKER",
    purpose="How many GPUs every worker must have; one with another number refuses to start "
    "instead of training on the CPU.",
    accepted="a whole number from 0",
    example="1",
)
STARTUP_TIMEOUT = Variable(
    name="STARTUP_TIMEOUT",
    purpose="How many seconds TensorFlow may wait for its peers, once the command has opened this "
    "worker's port; 0 is no limit.",
    accepted="a whole number from 0",
    example="600",
    default="300",
)
STOP_GRACE_SECONDS = Variable(
    name="STOP_GRACE_SECONDS",
    purpose="How long the command may take to end after SIGTERM before it is killed; less than "
    "docker stop's own 10 s.",
    accepted="a number of seconds from 0",
    example="55",
    default="8",
)
MAX_RESTARTS = Variable(
    name="MAX_RESTARTS",
    purpose="How often the command is started again after a crash, and after the loss of a peer "
    "(75) that often for each peer; counted anew at each progress (PROGRESS_FILE).",
    accepted="a whole number from 0",
    example="0",
    default="3",
)
PROGRESS_FILE = Variable(
    name="PROGRESS_FILE",
    purpose="A file that the command touches to say that it got further; not given: one is made, "
    "and its path handed to the command under this name.",
    accepted="the path of a file that may be made",
    example="/runs/progress",
    file_form=False,
)
FAILURE_FILE = Variable(
    name="FAILURE_FILE",
    purpose="Where the reason of a failure is written, in a few lines.",
    accepted="the path of a file that may be made",
    example="/runs/failure",
    file_form=False,
)
PEER_LOST_EXIT_CODE = Variable(
    name="PEER_LOST_EXIT_CODE",
    purpose="The exit code of a worker whose peer was lost or never came, for schedulers that "
    "retry only some: Kubeflow's ExitCode policy wants 128 or more.",
    accepted="a whole number from 1 to 255",
    example="203",
    default="75",
)
LOG_FORMAT = Variable(
    name="LOG_FORMAT",
    purpose="text is for people; json makes every line, the command's too, an object with time, "
    "level, worker and message.",
    accepted="text or json",
    example="json",
    default="text",
)

VARIABLES: Mapping[str, Variable] = {
    variable.name: variable
    for variable in (
        TF_CONFIG,
        WORKER_HOSTS,
        WORKER_INDEX,
        WORKER_PORT,
        CLUSTER_SOURCE,
        RENDEZVOUS_TIMEOUT,
        CLUSTER_TOKEN,
        GPUS_PER_WORKER,
        STARTUP_TIMEOUT,
        STOP_GRACE_SECONDS,
        MAX_RESTARTS,
        PROGRESS_FILE,
        FAILURE_FILE,
        PEER_LOST_EXIT_CODE,
        LOG_FORMAT,
        REQUIREMENTS_FILE,
        ENV_FILE,
    )
}


def has_file_form(name: str) -> bool:
    """Whether NAME_FILE is read for this name: ours, and any variable of the trainer's."""
    if name in VARIABLES:
        return VARIABLES[name].file_form
    return name.startswith(TRAINER_PREFIX) and name != TRAINER_PREFIX


def may_be_empty(name: str) -> bool:
    """Whether this is an option of ours or the trainer's, which counts as unset when empty."""
    if name in VARIABLES:
        return VARIABLES[name].may_be_empty
    return name.startswith(TRAINER_PREFIX)


def is_secret(name: str) -> bool:
    """Whether the name says that its value must not be shown."""
    return any(word in name.upper() for word in SECRET_WORDS)
