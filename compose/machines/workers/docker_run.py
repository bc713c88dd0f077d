"""Builds the `docker run` command of each worker: its options and variables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from local_cluster import docker_engine
from local_cluster.settings import names
from local_cluster.settings.settings import Settings
from machines.checks.facts import Facts
from machines.copies import code_folder
from machines.image import Image
from machines.machine import NEVER_PULLED, RUN, container_of

HARDENED = (
    *("--read-only", "--tmpfs", "/tmp:size=512m,mode=1777", "--cap-drop", "ALL"),  # noqa: S108
    *("--security-opt", "no-new-privileges:true"),
)


@dataclass(frozen=True)
class Start:
    """The values that all workers of a start share.

    Attributes:
        settings: the run's settings.
        environ: all variables.
        image: the workers' image.
        hosts: the addresses for WORKER_HOSTS.
        digest: the digest of the code; "": there is no code to mount.
        token: CLUSTER_TOKEN, which keeps out workers of an earlier start on a machine that was
            away.
        threads: TRAINER_THREADS of each worker; "": this program does not set it.
        name: a random name of this start.
    """

    settings: Settings
    environ: Mapping[str, str]
    image: Image
    hosts: tuple[str, ...]
    digest: str
    token: str
    threads: tuple[str, ...]
    name: str


def command_of(start: Start, facts: Facts) -> list[str]:
    """Return the docker command that starts a machine's worker, detached."""
    machine, settings = facts.machine, start.settings
    variables = _variables(start, facts)
    gpus = machine.host.gpus or ("all" if start.image.for_gpus else "")
    return [
        *("run", *NEVER_PULLED, "--detach", "--name", container_of(machine, settings.project)),
        *("--restart", "on-failure", "--network", "host", *HARDENED),
        *("--stop-timeout", str(settings.grace_seconds)),
        *("--user", f"{facts.one('uid')}:{facts.one('gid')}"),
        *_each("--label", _labels(start, facts)),
        *_each("--volume", _mounts(start, facts)),
        *_each("--env", (f"{name}={text}" for name, text in variables.items())),
        *_each("--env", _passed_on(start, variables)),
        *(("--gpus", gpus_option(gpus), "--shm-size", "1g") if gpus else ()),
        start.image.name,
        *_script(settings),
    ]


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [part for value in values for part in (option, value)]


def _labels(start: Start, facts: Facts) -> list[str]:
    labels = {
        docker_engine.PROJECT: start.settings.project,
        docker_engine.SERVICE: facts.machine.service,
        RUN: start.settings.run_name,
        docker_engine.START: start.name,
    }
    return [f"{name}={text}" for name, text in labels.items()]


def _mounts(start: Start, facts: Facts) -> list[str]:
    mounts = [f"{facts.folder}/runs:/runs", f"{facts.data}:/data"]
    if start.digest:
        mounts.append(f"{code_folder.place_of(facts, start.digest)}:/workspace:ro")
    return mounts


def _variables(start: Start, facts: Facts) -> dict[str, str]:
    """Return the variables that this program sets."""
    index = facts.machine.index
    decided = {
        "WORKER_HOSTS": ",".join(start.hosts),
        "WORKER_INDEX": str(index),
        "TRAINER_RUN_DIR": f"/runs/{start.settings.run_name}",
        "VERBOSE": "1",  # this program selects what the screen shows
        "TRAINER_THREADS": start.threads[index],
        "WORKSPACE_DIGEST": start.digest,
    }
    if not start.environ.get("STOP_GRACE_SECONDS"):
        decided["STOP_GRACE_SECONDS"] = str(start.settings.stop_grace_seconds)
    return {name: text for name, text in decided.items() if text}


def _passed_on(start: Start, decided: Mapping[str, str]) -> list[str]:
    """Return the names of the user's variables, without values: others can see a command line."""
    return [
        name
        for name in names.passed_on()
        if name not in decided and (start.environ.get(name) or name == "CLUSTER_TOKEN")
    ]


def _script(settings: Settings) -> list[str]:
    if not settings.script:
        return []
    return ["python", os.path.relpath(settings.script, settings.mounted)]


def gpus_option(text: str) -> str:
    """Return a host's gpus= for `docker run --gpus`, which parses its value as CSV."""
    return text if text == "all" else f'"device={text}"'


def threads_of(all_facts: Sequence[Facts], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return TRAINER_THREADS of each worker. Workers of one machine divide its processors.

    It is empty for a worker with a machine of its own, and if the user has set the variable.
    """
    found = []
    for facts in all_facts:
        sharing = sum(one.machine.name == facts.machine.name for one in all_facts)
        cores = int(facts.one("cores") or 0)
        divided = str(max(1, cores // sharing)) if sharing > 1 and cores else ""
        found.append("" if environ.get("TRAINER_THREADS") else divided)
    return tuple(found)
