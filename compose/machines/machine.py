"""One machine: commands over SSH, and its Docker engine by an ssh:// address."""

from __future__ import annotations

import base64
import re
import shlex
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, TypeVar

from local_cluster import processes
from local_cluster.docker_engine import Engine
from local_cluster.messages import EXIT_ERROR, EndError
from local_cluster.processes import answer_of
from machines.hosts_setting import Host

T = TypeVar("T")
R = TypeVar("R")
OPTIONS = (
    *("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
    *("-o", "ControlMaster=no", "-o", "ClearAllForwardings=yes"),
)
"""SSH never asks for a password, and notices a lost connection after 15 s. It checks host keys as
the user's configuration requires. It may share a connection that is open (ControlPath), but opens
none for others: it would not end before them, and its end would be theirs. It forwards no ports:
of several connections, only one could listen on them."""
FOR_DOCKER = Path(__file__).with_name("for_docker")
"""The folder with the ssh of docker's ssh:// addresses, which adds these options."""
NO_SSH = "there is no ssh command here; install OpenSSH's client."
SSH_FAILED = 255
ENGINE_SECONDS = 30.0
"""The time limit of a docker command over an ssh:// address."""
RUN = "cluster-trainer.run"
"""The label of a worker's container that names its run."""
NEVER_PULLED = ("--pull", "never")
"""Options of `docker run`: the image was copied to the machine. If it is gone, Docker must not take
a stranger's image of the same name from Docker Hub."""
HELP = re.compile("(See|Run) 'docker .*--help'")
"""The last line of Docker's errors, in older and newer versions."""
IN_SH = "exec sh -c 'eval \"$(echo {coded} | base64 -d)\"'"
"""Runs a script in sh, whatever the user's login shell is. csh and fish read quotes, newlines and
variables in their own ways, so the script comes in letters that mean nothing to them."""
WITH_THE_CONNECTION = "exec 3<&0; (cat; kill -TERM 0) <&3 >/dev/null 2>&1 & {command}"
"""Ends a long-running command when the connection is lost or its standard input is closed."""


@dataclass(frozen=True)
class Machine:
    """A machine, and the worker that it runs.

    Attributes:
        host: the machine's entry in HOSTS.
        index: the worker's index.
    """

    host: Host
    index: int

    @property
    def service(self) -> str:
        """The worker's name."""
        return f"worker-{self.index}"

    @property
    def name(self) -> str:
        """The machine's name in messages."""
        return self.host.target

    @property
    def engine(self) -> Engine:
        """Its Docker engine."""
        options = (("CLUSTER_TRAINER_SSH_OPTIONS", " ".join(OPTIONS)),)
        return Engine(f"ssh://{self.host.target}", ENGINE_SECONDS, str(FOR_DOCKER), options)

    def start(
        self,
        command: str,
        *,
        source: int | None = None,
        output: int | None = None,
        errors: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Start a shell script on the machine, in a new session that Ctrl-C does not reach.

        Raises:
            EndError: there is no ssh command.
        """
        coded = base64.b64encode(command.encode()).decode()
        try:
            return processes.start(
                ["ssh", *OPTIONS, *self.host.ssh, IN_SH.format(coded=coded)],
                stdin=subprocess.DEVNULL if source is None else source,
                stdout=output,
                stderr=errors,
            )
        except FileNotFoundError:
            raise EndError(EXIT_ERROR, NO_SSH) from None

    def follow(self, command: str) -> subprocess.Popen[bytes]:
        """Start a long-running command, which ends when its standard input is closed."""
        pipe = subprocess.PIPE
        return self.start(WITH_THE_CONNECTION.format(command=command), source=pipe, output=pipe)

    def ask(self, command: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a shell script on the machine, and return its exit code and its output."""
        return answer_of(self.start(command, output=subprocess.PIPE), seconds)

    def docker(self, *arguments: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a docker command on the machine, and return its exit code and its output."""
        return self.ask(f"docker {' '.join(map(shlex.quote, arguments))}", seconds)


def address_of(machine: Machine) -> str:
    """Return the address by which the others reach a machine: address=, or the one of SSH."""
    if machine.host.address:
        return machine.host.address
    ended = subprocess.run(
        ["ssh", "-G", *machine.host.ssh], capture_output=True, text=True, check=False
    )
    match = re.search("^hostname (.+)$", ended.stdout, re.MULTILINE)
    name = match[1] if match else machine.host.ssh[-1].rpartition("@")[2]
    return f"[{name}]" if ":" in name else name


def container_of(machine: Machine, project: str) -> str:
    """Return the name of a worker's container."""
    return f"{project}-{machine.service}"


def of(hosts: Sequence[Host]) -> list[Machine]:
    """Return the machines of hosts, with their workers' numbers."""
    return [Machine(host, index) for index, host in enumerate(hosts)]


def at_once(what: Callable[[T], R], those: Sequence[T]) -> list[R]:
    """Call a function for all items at the same time; return the results in the items' order.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; the programs that the calls waited for are killed.
    """
    with ThreadPoolExecutor(max_workers=max(1, len(those))) as pool:
        try:
            return list(pool.map(what, those))
        except KeyboardInterrupt:
            processes.interrupt()
            raise


def last_line(text: str) -> str:
    """Return the last line that is not empty, usually the reason why a command failed.

    Docker ends its reasons with a line about its help, which does not count.
    """
    lines = [line.strip() for line in text.splitlines()]
    reasons = [line for line in lines if line and not HELP.match(line)]
    return reasons[-1] if reasons else "it said nothing"
