"""Asks a machine for its facts, with one command."""

from __future__ import annotations

import shlex
import subprocess
import time
from dataclasses import dataclass

from local_cluster.docker_engine import PROJECT, START
from local_cluster.processes import NO_ANSWER
from machines.hosts_setting import FOLDER
from machines.image import Image
from machines.machine import RUN, SSH_FAILED, Machine, container_of, last_line

BEGIN, END, ASKS = "begin=1\n", "end=1\n", "asks"
SECONDS = 60.0
PROBE = """
echo begin=1
echo "time=$(date +%s)"; echo "uid=$(id -u)"; echo "gid=$(id -g)"; echo "machine=$(uname -m)"
echo "system=$(uname -s)"
echo "cores=$(nproc 2>/dev/null)"
echo "asks=the folder of data="
d={folder}; case $d in "~/"*) d="$HOME/${{d#"~/"}}";; esac; echo "dir=$d"
[ -z {data} ] || [ -d {data} ] || echo "no_data=1"
[ -z {data} ] || (cd -P {data} && echo "real_data=$PWD")
echo "asks=the folder for runs"
(cd -P "$HOME" && echo "real_home=$PWD")
while [ ! -e "$d" ]; do d=$(dirname "$d"); done
(cd -P "$d" && echo "real_dir=$PWD")
[ -w "$d" ] || echo "not_writable=$d"
echo "free=$(df -Pk "$d" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4)"
echo "asks=Docker"
if docker_version=$(docker version --format '{{{{.Server.Version}}}}' 2>&1); then
    echo "docker=$docker_version"
    root=$(docker info --format '{{{{.DockerRootDir}}}}')
    echo "docker_free=$(df -Pk "$root" 2>/dev/null | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4)"
    echo "security=$(docker info --format '{{{{json .SecurityOptions}}}}')"
    echo "runtimes=$(docker info --format '{{{{json .Runtimes}}}}')"
    docker image inspect --format 'image={image_form}' {image} 2>/dev/null || true
    [ -z {start} ] || docker ps --all --filter label={of_start} --format 'of_start={{{{.Names}}}}'
    docker inspect --format 'taken={label_of_run}' --type container {container} 2>/dev/null
    docker ps --filter label={project} --format 'there={{{{.Names}}}}'
    docker ps --filter label={project} --format '{of_run}'
    docker ps --filter label={project} --filter status=restarting --format 'there={{{{.Names}}}}'
else
    echo "docker_error=$docker_version" | tr '\\n' ' '; echo
fi
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
    sed -n 's/^ *[0-9]*: [0-9A-F]*:\\([0-9A-F]*\\) [0-9A-F:]* 0A .*/listens=\\1/p'
echo "asks=the GPUs"
[ -z {gpus} ] || nvidia-smi --query-gpu=index,driver_version --format=csv,noheader 2>/dev/null |
    sed 's/^/gpu=/'
echo "end=1"
"""
RUN_OF = "run_of_"
"""Before a container's name: the name of the value with its run."""
OF_RUN = f'{RUN_OF}{{{{.Names}}}}={{{{.Label "{RUN}"}}}}'
LABEL_OF_RUN = f'{{{{index .Config.Labels "{RUN}"}}}}'


@dataclass(frozen=True)
class Facts:
    """The answer of a machine, or the reason why there is none.

    Attributes:
        machine: the machine.
        told: the values of its answer, by name.
        error: the reason why there is no answer; "": there is one.
        clock: the minimum number of seconds by which its clock is ahead of this machine's.
        logged_in: whether SSH could log in.
    """

    machine: Machine
    told: dict[str, list[str]]
    error: str = ""
    clock: float = 0.0
    logged_in: bool = True

    def one(self, name: str) -> str:
        """Return the first value of a name, or "" if there is none."""
        return (self.told.get(name) or [""])[0]

    @property
    def folder(self) -> str:
        """The machine's folder for runs and code."""
        return self.one("dir")

    @property
    def listens(self) -> set[int]:
        """The ports on which programs of the machine listen."""
        return {int(one, 16) for one in self.told.get("listens", [])}

    @property
    def data(self) -> str:
        """The machine's folder that is mounted at /data."""
        return self.machine.host.data or f"{self.folder}/data"

    def has(self, image: Image) -> bool:
        """Tell whether the machine has the same image."""
        return self.one("image") == image.fingerprint


def probe(machine: Machine, image: Image, project: str, start: str = "") -> str:
    """Return the shell script that prints a machine's facts, one `name=value` on each line."""
    return PROBE.format(
        folder=shlex.quote(machine.host.dir or FOLDER),
        data=shlex.quote(machine.host.data),
        image=shlex.quote(image.name),
        image_form=image.FORM,
        project=shlex.quote(f"{PROJECT}={project}"),
        container=shlex.quote(container_of(machine, project)),
        start=shlex.quote(start),
        gpus=shlex.quote("1" if image.for_gpus or machine.host.gpus else ""),
        of_start=shlex.quote(f"{START}={start}"),
        of_run=OF_RUN,
        label_of_run=LABEL_OF_RUN,
    )


def ask(machine: Machine, image: Image, project: str, start: str) -> Facts:
    """Ask a machine for its facts. If it cannot be reached, `error` of the result says why.

    Args:
        machine: the machine.
        image: the worker's image.
        project: the cluster's name.
        start: the project's last start, whose workers the machine lists; "": it is unknown.
    """
    begin = time.time()
    ended = machine.ask(probe(machine, image, project, start), SECONDS)
    end = time.time()
    if ended.returncode == SSH_FAILED or END not in ended.stdout:
        return _without_answer(machine, ended)
    told: dict[str, list[str]] = {"container": [container_of(machine, project)]}
    printed, _, answer = ended.stdout.partition(BEGIN)
    if printed.strip():
        told["printed"] = [last_line(printed)]
    for line in answer.splitlines():
        name, _, value = line.partition("=")
        told.setdefault(name, []).append(value)
    return Facts(machine, told, clock=_ahead(int(told["time"][0]), begin, end))


def _without_answer(machine: Machine, ended: subprocess.CompletedProcess[str]) -> Facts:
    """Return the reason why a machine did not answer all questions."""
    printed, begin, answer = ended.stdout.partition(BEGIN)
    asked = [line.partition("=")[2] for line in answer.splitlines() if line.startswith(f"{ASKS}=")]
    about = f" to the question about {asked[-1]}" if asked and ended.returncode == NO_ANSWER else ""
    logged_in = bool(begin) or ended.returncode not in (SSH_FAILED, NO_ANSWER)
    reason = last_line(ended.stderr if ended.stderr.strip() else printed)
    return Facts(machine, {}, f"{reason}{about}", logged_in=logged_in)


def _ahead(there: int, begin: float, end: float) -> float:
    """Return the minimum number of seconds by which a machine's clock is ahead of this one's.

    Args:
        there: the machine's time, in whole seconds.
        begin: the time on this machine before the question.
        end: the time on this machine after the answer.
    """
    ahead = there + 0.5 - (begin + end) / 2
    uncertain = (end - begin) / 2 + 0.5
    return max(0.0, abs(ahead) - uncertain) * (1 if ahead > 0 else -1)
