"""Starts, stops and removes the workers on the machines."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from local_cluster import engine
from local_cluster.settings import names
from local_cluster.settings.settings import Settings
from machines import code_folder
from machines.facts import Facts
from machines.image import Image
from machines.machine import SSH_FAILED, Machine, container_of, last_line

RUN = "cluster-trainer.run"
"""The label of a worker with the run that it takes part in."""
START = "cluster-trainer.start"
"""The label of a worker with the start that made its container."""
HARDENED = (
    *("--read-only", "--tmpfs", "/tmp:size=512m,mode=1777", "--cap-drop", "ALL"),  # noqa: S108
    *("--security-opt", "no-new-privileges:true"),
)
START_SECONDS = 120
END_SECONDS = 60
"""What `docker stop` may take on top of the time that the workers have to end."""


@dataclass(frozen=True)
class Start:
    """What all workers of a run are given.

    Attributes:
        settings: the run.
        environ: the variables that were given.
        image: what they run.
        hosts: WORKER_HOSTS.
        digest: of the code; "": none is copied.
        token: CLUSTER_TOKEN, so that workers of an earlier start, on a machine that comes back,
            are strangers.
        threads: TRAINER_THREADS of each worker; "": not given.
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


def start_one(start: Start, facts: Facts) -> str:
    """Start a machine's worker, detached; return what went wrong.

    The docker command runs here, so that no secret is in a command line there.
    """
    command = ["run", "--detach", *_options(start, facts), start.image.name]
    if start.settings.script:
        inside = os.path.relpath(start.settings.script, start.settings.mounted)
        command += ["python", inside]
    environ = {**os.environ, **start.environ, "CLUSTER_TOKEN": start.token}
    ended = facts.machine.engine.ask(*command, environ=environ, seconds=START_SECONDS)
    if ended.returncode:
        return f"{facts.machine.name}: the worker does not start: {last_line(ended.stderr)}"
    return ""


def _options(start: Start, facts: Facts) -> list[str]:
    machine, settings = facts.machine, start.settings
    labels = {
        engine.PROJECT: settings.project,
        engine.SERVICE: machine.service,
        RUN: settings.run_name,
        START: start.name,
    }
    given = {
        "WORKER_HOSTS": ",".join(start.hosts),
        "WORKER_INDEX": str(machine.index),
        "TRAINER_RUN_DIR": f"/runs/{settings.run_name}",
        "VERBOSE": "1",  # what of it is on the screen, the driver chooses
    }
    if threads := start.threads[machine.index]:
        given["TRAINER_THREADS"] = threads
    mounts = [f"{facts.folder}/runs:/runs", f"{facts.data}:/data"]
    if start.digest:
        given["WORKSPACE_DIGEST"] = start.digest
        mounts.append(f"{code_folder.place_of(facts, start.digest)}:/workspace:ro")
    # By their names alone: a value may be a secret, and a command line can be seen.
    passed = [
        name
        for name in names.passed_on()
        if name not in given and (start.environ.get(name) or name == "CLUSTER_TOKEN")
    ]
    gpus = machine.host.gpus or ("all" if start.image.for_gpus else "")
    return [
        *("--name", container_of(machine, settings.project), "--restart", "on-failure"),
        *("--network", "host", *HARDENED, "--stop-timeout", str(settings.grace_seconds)),
        *("--user", f"{facts.one('uid')}:{facts.one('gid')}"),
        *(part for name, text in labels.items() for part in ("--label", f"{name}={text}")),
        *(part for mount in mounts for part in ("--volume", mount)),
        *(part for name, text in given.items() for part in ("--env", f"{name}={text}")),
        *(part for name in passed for part in ("--env", name)),
        *(("--gpus", gpus_option(gpus), "--shm-size", "1g") if gpus else ()),
    ]


def gpus_option(text: str) -> str:
    """Return a host's gpus= as `docker run --gpus` takes it, which reads it as a line of CSV."""
    return text if text == "all" else f'"device={text}"'


def stop(machine: Machine, project: str) -> str:
    """Ask a machine's worker to stop, and wait until it has ended; return what went wrong."""
    name = container_of(machine, project)
    stopping = f"docker stop {shlex.quote(name)}"
    ended = machine.ask(stopping, seconds=_grace(machine, name) + END_SECONDS)
    return f"{machine.name}: {last_line(ended.stderr)}" if ended.returncode else ""


def _grace(machine: Machine, container: str) -> float:
    ended = machine.docker("inspect", "--format", "{{.Config.StopTimeout}}", container)
    text = ended.stdout.strip()
    return float(text) if text.isdecimal() else 0.0


def is_running(machine: Machine, project: str) -> bool | None:
    """Tell whether a machine's worker runs, or is being started again; None: it is unknown."""
    name = container_of(machine, project)
    ended = machine.docker("inspect", "--format", "{{.State.Status}}", name)
    if ended.returncode and not _is_gone(ended.stderr):
        return None
    return ended.stdout.strip() in ("running", "restarting", "paused")


def _is_gone(said: str) -> bool:
    return any(text in said.lower() for text in ("no such container", "no such object"))


def start_again(machine: Machine, project: str) -> str:
    """Start a worker that has ended; return what went wrong."""
    ended = machine.docker("start", container_of(machine, project))
    return f"{machine.name}: {last_line(ended.stderr)}" if ended.returncode else ""


def remove(machine: Machine, project: str) -> str:
    """Remove a machine's worker; return what went wrong."""
    name = container_of(machine, project)
    ended = machine.docker("rm", "--force", name)
    if not ended.returncode or _is_gone(ended.stderr):
        return ""
    by_hand = f"`docker --host {machine.engine.host} rm --force {name}` removes its worker"
    when = "when it answers again, " if ended.returncode == SSH_FAILED else ""
    return f"{machine.name}: {last_line(ended.stderr)}; {when}{by_hand}"


def remove_of_start(machine: Machine, start: Start) -> str:
    """Remove what a start has made on a machine, and nothing else; return what went wrong.

    A container of the same name may be another person's.
    """
    label = shlex.quote(f"label={START}={start.name}")
    ended = machine.ask(
        f"docker ps --all --quiet --filter {label} | xargs -r docker rm --force",
        seconds=END_SECONDS,
    )
    if not ended.returncode:
        return ""
    by_hand = f"docker rm --force {container_of(machine, start.settings.project)}"
    return f"{machine.name}: {last_line(ended.stderr)}; on it, `{by_hand}` removes its worker"


def threads_of(all_facts: Sequence[Facts], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return TRAINER_THREADS of each worker: those that share a machine divide its processors."""
    found = []
    for facts in all_facts:
        sharing = sum(one.machine.name == facts.machine.name for one in all_facts)
        cores = int(facts.one("cores") or 0)
        divided = str(max(1, cores // sharing)) if sharing > 1 and cores else ""
        found.append("" if environ.get("TRAINER_THREADS") else divided)
    return tuple(found)
