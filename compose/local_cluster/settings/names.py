"""The names that make and the commands accept, and suggestions for misspelt names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from local_cluster.messages import EXIT_CONFIGURATION, EndError, say

LIST = Path(__file__).parents[2] / "settings.env"
PREFIX = "TRAINER_"
MAX_WORKERS = 8

OWN = (
    "WORKERS",
    "NETWORK",
    "IMAGE",
    "OVERLAYS",
    "GRACE_SECONDS",
    "DATA_DIR",
    "WORKSPACE_DIR",
    "SCRIPT",
    "HOSTS",
    "RUN_UID",
    "RUN_GID",
    *(f"WORKER_{index}_GPUS" for index in range(MAX_WORKERS)),
)
"""The variables that determine a cluster, besides those that its containers get."""
OF_ONE_MACHINE = {
    "WORKERS": "one entry in HOSTS for each worker",
    "NETWORK": "none: the workers use their machines' network",
    "OVERLAYS": "none: Compose runs local clusters only",
    "DATA_DIR": "data=/a/folder behind each machine in HOSTS",
    "RUN_UID": "none: the workers run as the user who logs in",
    "RUN_GID": "none: the workers run as the user who logs in",
    **{
        f"WORKER_{index}_GPUS": "gpus=0,1 behind each machine in HOSTS"
        for index in range(MAX_WORKERS)
    },
}
"""The variables of local clusters only, and what replaces them where HOSTS is set."""
PLACE = ("COMPOSE_PROJECT_NAME", "RUNS_DIR", "RUN_NAME")
"""The variables that select a cluster, and one of its runs."""
PORT = "TENSORBOARD_PORT"
"""TensorBoard's port; make takes it as PORT."""
DECIDED = {"TRAINER_DATA_DIR": "DATA_DIR", "TRAINER_RUN_DIR": "RUNS_DIR and RUN_NAME"}
"""The trainer's settings that a local cluster sets itself, and the variables that replace them."""
SHORT = {
    "NAME": "RUN_NAME",
    "BATCH": "TRAINER_PER_REPLICA_BATCH_SIZE",
    "GLOBAL_BATCH": "TRAINER_GLOBAL_BATCH_SIZE",
}
"""Short names that make accepts. It also accepts each TRAINER_X as X."""
GOALS = frozenset(
    {
        *("up-local", "resume", "stop", "down", "logs", "ps", "status", "data", "data-sample"),
        *("tensorboard", "report", "up", "attach", "fetch", "replace"),
    }
)
"""Make's targets for clusters."""
RUNS = frozenset({"up-local", "up", "resume", "data", "data-sample"})
"""The targets that start a run or a container."""
OF_TOOLS = re.compile(
    r"(BASE|BUILDKIT|BUILDX|COMPOSE|DOCKER|GNUMAKE|MAKE|PIP|SSL)[A-Z_]*"
    r"|PYTHON|SHELL|PATH|HOME|TMPDIR|(https?|no)_proxy|(HTTPS?|NO)_PROXY"
)
"""Variables that make, Docker, pip and the build scripts read."""
MAY_BE_SECRET = re.compile("CLUSTER_TOKEN|PREEMPTION_URL|PIP_.*")
"""Variables that are a secret, or an address that may contain one."""
HIDDEN = "***"


NO_HOSTS = (
    'HOSTS: received ""; accepted: machines, as in `make up HOSTS="ana@10.0.0.1 ana@10.0.0.2"`, or '
    "a file with one on each line. `make up-local` trains on this machine."
)


def passed_on() -> tuple[str, ...]:
    """Return the variables that containers get, from settings.env."""
    lines = (line.strip() for line in LIST.read_text(encoding="utf-8").splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def is_taken(name: str) -> bool:
    """Whether a variable, or a line of .env, concerns local clusters."""
    return name.startswith(PREFIX) or name in {*OWN, *PLACE, PORT, *passed_on()}


def unknown_settings(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each TRAINER_ variable that is not a setting."""
    listed = passed_on()
    unknown = (name for name in sorted(environ) if name.startswith(PREFIX) and environ[name])
    return [_refusal_of_setting(name, listed) for name in unknown if name not in listed]


def _refusal_of_setting(name: str, listed: Iterable[str]) -> str:
    accepted = f"accepted: the {PREFIX} variables of docs/reference/settings.md"
    return _decided(name) or f"{name}: no such setting; {accepted}.{_meant(name, listed)}"


def _decided(name: str) -> str:
    """Return a sentence about a setting that a local cluster sets itself; empty for others."""
    if name not in DECIDED:
        return ""
    return f"{name}: a local cluster sets it; give {DECIDED[name]} instead."


def names_of_goal(goal: str, *, one_worker: bool = False) -> frozenset[str]:
    """Return the variables that a target for local clusters accepts on make's command line.

    Args:
        goal: the target.
        one_worker: whether WORKER is given: then `resume` starts that worker unchanged.
    """
    run = frozenset({*OWN, *PLACE, *SHORT, *_short(), *passed_on()})
    worker = frozenset({"WORKER"})
    place = frozenset({"IMAGE", "DATA_DIR", "RUN_UID", "RUN_GID", "DATASET"})
    return {
        "up-local": run - {"HOSTS"},
        "up": run - {*OF_ONE_MACHINE},
        "attach": frozenset({"VERBOSE"}),
        "fetch": frozenset({"NAME", "RUN_NAME", "RUNS_DIR"}),
        "replace": frozenset({"HOST", "WITH", "VERBOSE"}),
        "resume": worker if one_worker else run | worker,
        "stop": worker,
        "status": frozenset({"JSON"}),
        "data": place,
        "data-sample": place | {"SAMPLE_PICTURES"},
        "report": frozenset({"NAME", "RUN_NAME", "IMAGE", "RUNS_DIR", "RUN_UID", "RUN_GID"}),
        "tensorboard": frozenset({"PORT", PORT, "IMAGE", "RUNS_DIR", "RUN_UID", "RUN_GID"}),
    }.get(goal, frozenset())


def _short() -> set[str]:
    """Return the settings' names without their prefix, which make accepts."""
    return {name[len(PREFIX) :] for name in passed_on() if name.startswith(PREFIX)}


def taken_from(shell: Mapping[str, str], goals: Iterable[str], given: Iterable[str]) -> list[str]:
    """Return the shell's variables that targets take, as NAME=value, without secrets' values.

    TRAINER_ variables are left out: no other program has them. IMAGE and RUN_NAME are left out,
    too: make sets them itself, and `up` prints them.

    Args:
        shell: the shell's variables, with those that make exports.
        goals: the targets.
        given: the names on make's command line.
    """
    taken = _taken_by(goals, given) - {"IMAGE", "NAME", "RUN_NAME", *given}
    found = [n for n in sorted(taken) if shell.get(n) and not n.startswith(PREFIX)]
    return [f"{n}={HIDDEN if MAY_BE_SECRET.fullmatch(n) else shell[n]}" for n in found]


def _taken_by(goals: Iterable[str], given: Iterable[str]) -> frozenset[str]:
    one = "WORKER" in given
    return frozenset[str]().union(*(names_of_goal(goal, one_worker=one) for goal in goals))


def unknown_names(goals: Iterable[str], given: Iterable[str]) -> list[str]:
    """Return a sentence for each name on make's command line that no target accepts."""
    goals, given = [*goals], [*given]
    if not GOALS.issuperset(goals):  # other targets accept other names
        return []
    one, taken = "WORKER" in given, _taken_by(goals, given)
    unknown = (name for name in given if name not in taken and not OF_TOOLS.fullmatch(name))
    targets = "`make " + " ".join(goals) + (" WORKER=`" if one and "WORKER" in taken else "`")
    accepted = "accepted: the variables in docs/reference/make.md" if taken else "accepted: none"
    return [
        _decided(name)
        or (f"{name}: {targets} does not take this variable; {accepted}.{_meant(name, taken)}")
        for name in unknown
    ]


def check_names(
    environ: Mapping[str, str],
    shell: Mapping[str, str],
    goals: Sequence[str],
    given: Sequence[str],
) -> int:
    """Check the names on make's command line, and the TRAINER_ variables; print those of the shell.

    make does this before it builds anything.

    Args:
        environ: all variables, with those of .env.
        shell: the shell's variables.
        goals: make's targets.
        given: the names on make's command line.

    Raises:
        EndError: some are unknown; the message has a sentence for each.
    """
    problems = unknown_names(goals, given)
    if "up" in goals and not environ.get("HOSTS"):
        problems.append(NO_HOSTS)
    if RUNS.intersection(goals):
        problems += unknown_settings({n: text for n, text in environ.items() if n not in given})
    if problems:
        raise EndError(EXIT_CONFIGURATION, *problems)
    if found := taken_from(shell, RUNS.intersection(goals), given):
        name = found[0].partition("=")[0]
        without = f"`make {' '.join(goals)} {name}=` leaves {name} out"
        say(f"taken from your shell: {', '.join(found)} ({without})")
    return 0


def _meant(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of the most similar known name, if there is one.

    The prefix is not compared. Otherwise all settings would be similar.
    """
    prefix = PREFIX if name.startswith(PREFIX) else ""
    others = sorted(other[len(prefix) :] for other in known if other.startswith(prefix))
    near = difflib.get_close_matches(name[len(prefix) :].upper(), others, n=1)
    return f" Did you mean {prefix}{near[0]}?" if near else ""
