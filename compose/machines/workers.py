"""The workers on the machines: what their containers are given, started, stopped and removed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from local_cluster import engine
from local_cluster.settings import names
from local_cluster.settings.settings import Settings
from machines import code_folder
from machines.facts import Facts, address_of
from machines.image import Image
from machines.machine import Machine, at_once, last_line

RUN = "cluster-trainer.run"
"""The label of a worker with the run that it takes part in."""
HARDENED = (
    *("--read-only", "--tmpfs", "/tmp:size=512m,mode=1777", "--cap-drop", "ALL"),  # noqa: S108
    *("--security-opt", "no-new-privileges:true"),
)
LISTEN_AND_DIAL = """
import socket, sys, threading, time
own, others = int(sys.argv[1]), sys.argv[2:]
server = socket.create_server(("", own), family=socket.AF_INET6, dualstack_ipv6=True) \
    if socket.has_dualstack_ipv6() else socket.create_server(("", own))
def answer():
    while True:
        server.accept()[0].close()
threading.Thread(target=answer, daemon=True).start()
end = time.monotonic() + 15
for other in others:
    host, _, port = other.rpartition(":")
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), 3).close()
            break
        except OSError as error:
            if time.monotonic() > end:
                print(other, error, sep="\\t", flush=True)
                break
            time.sleep(0.2)
print("tried", flush=True)
sys.stdin.read()
"""
"""What each machine runs in the image before there are workers: it answers on the worker's port, and
tries those of all others. It ends when its input does."""
DIAL_SECONDS = 60


@dataclass(frozen=True)
class Start:
    """What all workers of a run are given.

    Attributes:
        settings: the run.
        environ: the variables that were given.
        image: what they run.
        hosts: WORKER_HOSTS.
        digest: of the code; "": none is copied.
    """

    settings: Settings
    environ: Mapping[str, str]
    image: Image
    hosts: tuple[str, ...]
    digest: str


def addresses(all_facts: Sequence[Facts]) -> tuple[str, ...]:
    """Return WORKER_HOSTS, in the order of the machines."""
    found = at_once(lambda one: address_of(one.machine), all_facts)
    return tuple(
        f"{address}:{one.machine.host.port}" for address, one in zip(found, all_facts)
    )


def try_connections(start: Start, all_facts: Sequence[Facts]) -> list[str]:
    """Let each machine reach each other one on the worker's port; return what went wrong."""
    options = ("run", "--rm", "--interactive", "--network", "host", *HARDENED)
    processes = []
    for facts, own in zip(all_facts, start.hosts):
        others = [one for one in start.hosts if one != own]
        program = ("--entrypoint", "python", start.image.name, "-c", LISTEN_AND_DIAL)
        command = [*options, *program, facts.machine.host.port, *others]
        pipe = engine.subprocess.PIPE
        processes.append(
            facts.machine.engine.start(command, source=pipe, output=pipe, errors=pipe)
        )
    found, told = [], at_once(_until_tried, processes)
    for process in processes:
        _, err = process.communicate()
        if process.returncode:
            told[processes.index(process)].append("-\t" + last_line(err.decode(errors="replace")))
    for facts, lines in zip(all_facts, told):
        for other, _, why in (line.partition("\t") for line in lines):
            what = f"it does not reach {other}" if other != "-" else "the connections were not tried"
            found.append(f"{facts.machine.name}: {what}: {why}")
    return found


def _until_tried(process: engine.subprocess.Popen[bytes]) -> list[str]:
    assert process.stdout  # noqa: S101 -- it is a pipe
    lines = []
    for line in process.stdout:
        text = line.decode(errors="replace").strip()
        if text == "tried":
            break
        lines.append(text)
    return lines


def start_one(start: Start, facts: Facts) -> str:
    """Start a machine's worker, detached; return what went wrong."""
    command = ["run", "--detach", *_options(start, facts), start.image.name]
    if start.settings.script:
        inside = os.path.relpath(start.settings.script, start.settings.mounted)
        command += ["python", inside]
    environ = {**os.environ, **start.environ}
    ended = facts.machine.engine.ask(*command, environ=environ)
    if ended.returncode:
        return f"{facts.machine.name}: the worker does not start: {last_line(ended.stderr)}"
    return ""


def _options(start: Start, facts: Facts) -> list[str]:
    machine, settings = facts.machine, start.settings
    labels = {
        engine.PROJECT: settings.project,
        engine.SERVICE: machine.service,
        RUN: settings.run_name,
    }
    given = {
        "WORKER_HOSTS": ",".join(start.hosts),
        "WORKER_INDEX": str(machine.index),
        "TRAINER_RUN_DIR": f"/runs/{settings.run_name}",
        "VERBOSE": "1",  # what of it is on the screen, the driver chooses
    }
    mounts = [f"{facts.folder}/runs:/runs", f"{facts.data}:/data"]
    if start.digest:
        given["WORKSPACE_DIGEST"] = start.digest
        mounts.append(f"{code_folder.place_of(facts, start.digest)}:/workspace:ro")
    # By their names alone: a value may be a secret, and a command line can be seen.
    passed = [name for name in names.passed_on() if start.environ.get(name) and name not in given]
    gpus = machine.host.gpus or ("all" if start.image.for_gpus else "")
    return [
        *("--name", f"{settings.project}-{machine.service}", "--restart", "on-failure"),
        *("--network", "host", *HARDENED, "--stop-timeout", str(settings.grace_seconds)),
        *("--user", f"{facts.one('uid')}:{facts.one('gid')}"),
        *(part for name, text in labels.items() for part in ("--label", f"{name}={text}")),
        *(part for mount in mounts for part in ("--volume", mount)),
        *(part for name, text in given.items() for part in ("--env", f"{name}={text}")),
        *(part for name in passed for part in ("--env", name)),
        *(("--gpus", _gpus(gpus), "--shm-size", "1g") if gpus else ()),
    ]


def _gpus(text: str) -> str:
    return text if text == "all" else f'"device={text}"'


def remove(machine: Machine, project: str) -> str:
    """Remove the workers of a project from a machine; return what went wrong."""
    chosen = ("ps", "--all", "--quiet", "--filter", f"label={engine.PROJECT}={project}")
    ended = machine.engine.ask(*chosen, "--filter", f"label={RUN}", seconds=60)
    if not ended.returncode and ended.stdout.split():
        ended = machine.engine.ask("rm", "--force", *ended.stdout.split(), seconds=60)
    return f"{machine.name}: {last_line(ended.stderr)}" if ended.returncode else ""
