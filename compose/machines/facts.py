"""Asks a machine for its facts with one command, and lists what is wrong with it."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from local_cluster.engine import PROJECT
from machines.image import Image
from machines.machine import SSH_FAILED, Machine, container_of, last_line
from machines.own import NONE, Own

FIRST_DOCKER = (20, 10)
FIRST_DRIVER = (525, 60)
"""The first that CUDA 12 runs on (entrypoint/checks/nvidia_driver.py)."""
MOST_CLOCK_SECONDS = 5.0
FREE_FOR_RUNS = 1 << 30
TIMES_IMAGE = 2
"""An image is unpacked beside what arrives of it."""
PROBE = """
echo "time=$(date +%s)"; echo "uid=$(id -u)"; echo "gid=$(id -g)"; echo "machine=$(uname -m)"
echo "cores=$(nproc 2>/dev/null)"
d={folder}; [ -n "$d" ] || d="$HOME/cluster-trainer"; echo "dir=$d"
[ -z {data} ] || [ -d {data} ] || echo "no_data=1"
[ -z {data} ] || (cd -P {data} && echo "real_data=$PWD")
(cd -P "$HOME" && echo "real_home=$PWD")
while [ ! -e "$d" ]; do d=$(dirname "$d"); done
(cd -P "$d" && echo "real_dir=$PWD")
[ -w "$d" ] || echo "not_writable=$d"
echo "free=$(df -Pk "$d" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4)"
if docker_version=$(docker version --format '{{{{.Server.Version}}}}' 2>&1); then
    echo "docker=$docker_version"
    root=$(docker info --format '{{{{.DockerRootDir}}}}')
    echo "docker_free=$(df -Pk "$root" 2>/dev/null | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4)"
    echo "security=$(docker info --format '{{{{json .SecurityOptions}}}}')"
    echo "runtimes=$(docker info --format '{{{{json .Runtimes}}}}')"
    docker image inspect --format 'image={image_form}' {image} 2>/dev/null || true
    docker inspect {container} >/dev/null 2>&1 && echo "taken=1"
    docker ps --filter label={project} --format 'there={{{{.Names}}}}'
    docker ps --filter label={project} --filter status=restarting --format 'there={{{{.Names}}}}'
else
    echo "docker_error=$docker_version" | tr '\\n' ' '; echo
fi
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
    sed -n 's/^ *[0-9]*: [0-9A-F]*:\\([0-9A-F]*\\) [0-9A-F:]* 0A .*/listens=\\1/p'
nvidia-smi --query-gpu=index,driver_version --format=csv,noheader 2>/dev/null | sed 's/^/gpu=/'
echo "end=1"
"""


@dataclass(frozen=True)
class Facts:
    """The answer of a machine, or the reason why there is none.

    Attributes:
        machine: the machine.
        told: the lines of its answer, by their names.
        error: why there are none; "" if there are.
        clock: by how many seconds its clock is ahead of this machine's.
    """

    machine: Machine
    told: dict[str, list[str]]
    error: str = ""
    clock: float = 0.0

    def one(self, name: str) -> str:
        """Return the first line of a name, "" without one."""
        return (self.told.get(name) or [""])[0]

    @property
    def folder(self) -> str:
        """Where runs and code are there."""
        return self.one("dir")

    @property
    def listens(self) -> set[int]:
        """The ports on which a program listens there."""
        return {int(one, 16) for one in self.told.get("listens", [])}

    @property
    def data(self) -> str:
        """What is mounted at /data."""
        return self.machine.host.data or f"{self.folder}/data"

    def has(self, image: Image) -> bool:
        """Tell whether the same image is there."""
        return self.one("image") == image.fingerprint


def probe(machine: Machine, image: Image, project: str) -> str:
    """Return the script that prints a machine's facts, a name and a value on each line."""
    return PROBE.format(
        folder=shlex.quote(machine.host.dir),
        data=shlex.quote(machine.host.data),
        image=shlex.quote(image.name),
        image_form=image.FORM,
        project=shlex.quote(f"{PROJECT}={project}"),
        container=shlex.quote(container_of(machine, project)),
    )


def ask(machine: Machine, image: Image, project: str) -> Facts:
    """Ask a machine; one that cannot be reached is no error here."""
    begin = time.time()
    ended = machine.ask(f"sh -c {shlex.quote(probe(machine, image, project))}")
    if ended.returncode == SSH_FAILED or "end=1" not in ended.stdout:
        return Facts(machine, {}, last_line(ended.stderr))
    told: dict[str, list[str]] = {"container": [container_of(machine, project)]}
    for line in ended.stdout.splitlines():
        name, _, value = line.partition("=")
        told.setdefault(name, []).append(value)
    ahead = int(told["time"][0]) + 0.5 - (begin + time.time()) / 2
    slack = (time.time() - begin) / 2 + 0.5
    return Facts(machine, told, clock=max(0.0, abs(ahead) - slack) * (1 if ahead > 0 else -1))


def address_of(machine: Machine) -> str:
    """Return the address by which the others reach a machine: what SSH connects to."""
    if machine.host.address:
        return machine.host.address
    ended = subprocess.run(
        ["ssh", "-G", *machine.host.ssh], capture_output=True, text=True, check=False
    )
    match = re.search("^hostname (.+)$", ended.stdout, re.MULTILINE)
    name = match[1] if match else machine.host.ssh[-1].rpartition("@")[2]
    return f"[{name}]" if ":" in name else name


def running(facts: Facts, own: Own) -> dict[str, int]:
    """Return the workers that run on a machine until they are replaced, with their ports."""
    there = facts.told.get("there", []) if own.may_run else []
    return {name: port for name, port in own.on(facts.machine).items() if name in there}


def problems(all_facts: Sequence[Facts], image: Image, own: Own = NONE) -> list[str]:
    """Return a sentence for each thing that is wrong with any of the machines.

    Args:
        all_facts: what they have told.
        image: what the workers run.
        own: the workers that this start replaces.
    """
    found = [
        f"{one.machine.name}: {problem}" for one in all_facts for problem in _of(one, image, own)
    ]
    reached = [one for one in all_facts if not one.error]
    if len(all_facts) > 1:
        found += [sentence for one in reached for sentence in _of_address(one)]
    return found + _of_shared_gpus(all_facts, image) + _of_clocks(reached)


def _of_shared_gpus(all_facts: Sequence[Facts], image: Image) -> list[str]:
    """Return a sentence for each machine with two workers of which one would get all GPUs."""
    names = [one.machine.name for one in all_facts] if image.for_gpus else []
    shared = {
        one.machine.name
        for one in all_facts
        if names.count(one.machine.name) > 1 and not one.machine.host.gpus
    }
    return [
        f"{name}: it has two workers, and one without gpus= gets all GPUs; give gpus= for each"
        for name in sorted(shared)
    ]


def _of_clocks(reached: Sequence[Facts]) -> list[str]:
    """Return what is wrong with the clocks; of two, nobody knows which is wrong."""
    clocks = sorted(one.clock for one in reached)
    if not clocks or clocks[-1] - clocks[0] <= MOST_CLOCK_SECONDS:
        return []
    accepted = f"at most {MOST_CLOCK_SECONDS:g} s. Switch on time synchronisation (NTP)"
    middle = clocks[len(clocks) // 2]
    away = {one.machine.name: abs(one.clock - middle) for one in reached}
    wrong = {name: by for name, by in away.items() if by > MOST_CLOCK_SECONDS}
    if 2 * (len(away) - len(wrong)) > len(away):
        told = "its clock differs by {:.0f} s from the others'; accepted: {}."
        return [f"{name}: {told.format(by, accepted)}" for name, by in wrong.items()]
    names = ", ".join(away)
    by = clocks[-1] - clocks[0]
    return [f"{names}: their clocks differ by {by:.0f} s; accepted: {accepted} on all of them."]


def _of(facts: Facts, image: Image, own: Own) -> Iterator[str]:
    if facts.error:
        by_hand = f"ssh {' '.join(facts.machine.host.ssh)}"
        yield (
            f"SSH cannot log in: {facts.error.rstrip('.')}. Try `{by_hand}`: it has to work "
            "without a password, and with a host key that you have accepted."
        )
        return
    if not facts.one("docker"):
        yield f"Docker does not answer there: {last_line(facts.one('docker_error'))}"
        return
    yield from _of_docker(facts, image)
    yield from _of_security(facts)
    if facts.one("no_data"):
        yield f"there is no folder {facts.machine.host.data} (data=)"
    yield from _of_data(facts)
    if place := facts.one("not_writable"):
        yield f"{place} cannot be written (dir={facts.folder})"
    if 1024 * int(facts.one("free") or 0) < FREE_FOR_RUNS:
        yield f"less than 1 GB is free in {facts.folder}"
    replaced = running(facts, own)
    port = int(facts.machine.host.port)
    if port in facts.listens and port not in replaced.values():
        yield f"another program listens on port {port}; give another with port="
    by_hand = f"docker --host {facts.machine.engine.host} rm --force"
    there = {*facts.told.get("there", [])} - {*replaced}
    if there:
        names = sorted(there)
        removes = f"`{by_hand} {' '.join(names)}` removes them"
        yield f"workers of this project run there: {', '.join(names)}. {removes}"
    name = facts.one("container")
    if facts.one("taken") and name not in own.on(facts.machine) and name not in there:
        yield f"a container {name} is there, which has ended. `{by_hand} {name}` removes it"


def _of_data(facts: Facts) -> Iterator[str]:
    """Workers can write in /data. So it may not have what logs people in, nor code of others."""
    data = facts.one("real_data")
    if not data:
        return
    home = facts.one("real_home")
    for name, place in (("the home folder", home), ("the folder of dir=", facts.one("real_dir"))):
        if place and _is_in(place, data):
            accepted = "a folder that holds data sets only"
            yield f"data={facts.machine.host.data} has {name}, {place}; accepted: {accepted}"
            return
    if home and _is_in(data, f"{home}/.ssh"):
        yield f"data={facts.machine.host.data} has the keys to log in; accepted: another folder"


def _is_in(path: str, folder: str) -> bool:
    return PurePosixPath(folder) in (PurePosixPath(path), *PurePosixPath(path).parents)


def _of_address(facts: Facts) -> Iterator[str]:
    address = address_of(facts.machine).strip("[]")
    if address in ("localhost", "::1") or address.startswith("127."):
        yield (
            f"{facts.machine.name}: the other machines cannot reach it as {address}; give one that "
            "they reach with address="
        )


def _of_docker(facts: Facts, image: Image) -> Iterator[str]:
    version = facts.one("docker")
    if _numbers(version) < FIRST_DOCKER:
        yield f"Docker {version} is there; accepted: 20.10 or later"
    if facts.one("machine") not in image.machines:
        yield f"its processor is {facts.one('machine')}; the image is for {image.architecture}"
    free = 1024 * int(facts.one("docker_free") or 0)
    if not facts.has(image) and facts.one("docker_free") and free < TIMES_IMAGE * image.size:
        needed = TIMES_IMAGE * image.size / 1e9
        yield f"Docker has {free / 1e9:.1f} GB free; the image needs {needed:.1f}"
    if image.for_gpus or facts.machine.host.gpus:
        yield from _of_gpus(facts)


def _of_security(facts: Facts) -> Iterator[str]:
    """Workers need the machine's own network, and its user's id to write results."""
    options = facts.one("security")
    if '"name=rootless' in options:
        yield (
            "its Docker is rootless: the other machines would not reach the worker, and the "
            "results would belong to another user; accepted: Docker as root, with the user in the "
            "group docker. `docker context use default` selects it, if it is there"
        )
    elif '"name=userns' in options:
        yield (
            "its Docker remaps users (userns-remap), so that a worker can neither use the "
            "machine's network nor write results; accepted: Docker without userns-remap"
        )


def _of_gpus(facts: Facts) -> Iterator[str]:
    if '"nvidia"' not in facts.one("runtimes"):
        yield "Docker has no NVIDIA runtime: install NVIDIA's container toolkit"
    gpus = [line.split(", ") for line in facts.told.get("gpu", [])]
    if not gpus:
        yield "nvidia-smi shows no GPU: install NVIDIA's driver"
        return
    wanted = {one for one in facts.machine.host.gpus.split(",") if one not in ("", "all")}
    if missing := wanted - {one[0] for one in gpus}:
        yield f"it has no GPU {', '.join(sorted(missing))}; it has {len(gpus)}"
    if _numbers(gpus[0][-1]) < FIRST_DRIVER:
        yield f"its NVIDIA driver is {gpus[0][-1]}; accepted: 525.60 or later"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall("[0-9]+", version)[:2])
