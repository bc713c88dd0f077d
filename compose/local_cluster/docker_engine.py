"""The Docker engine, used through its command line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from local_cluster import processes
from local_cluster.messages import EXIT_CONFIGURATION, EXIT_ERROR, EndError
from local_cluster.processes import answer_of
from local_cluster.settings.given_variables import User

NO_DOCKER = "there is no docker command here; `make engine` shows what to install."
PROJECT = "com.docker.compose.project"
SERVICE = "com.docker.compose.service"
UP = "cluster-trainer.up"
"""A worker's label with the identity of the process that runs its cluster (compose.yaml)."""
START = "cluster-trainer.start"
"""A label of the workers of `make up HOSTS=…`: the start that created them. Local workers have
none. This machine may take part in such a cluster of the same project."""
WORKER = (
    f'{{{{index .Config.Labels "{SERVICE}"}}}} {{{{.State.Status}}}} {{{{.State.ExitCode}}}} '
    f'{{{{.Id}}}} {{{{.State.StartedAt}}}} {{{{or (index .Config.Labels "{UP}") "-"}}}}'
)
FIELDS = 6
"""The number of the template's fields for a worker."""
ACCELERATORS = "cluster-trainer.accelerators"
"""The label with the accelerators that an image supports (Dockerfile). Own images inherit it."""
ROOTLESS, REMAPPED = '"name=rootless', '"name=userns'
"""Security options of an engine in whose containers users have other numbers than outside."""
TENSORBOARD = "tensorboard"
DEFAULT_CONTEXT = "default"
"""Docker's name of the engine that DOCKER_HOST selects, or of the local one."""
BY_NETWORK = ("tcp://", "ssh://", "http://", "https://")


@dataclass(frozen=True)
class Engine:
    """An engine, used through the docker command.

    Attributes:
        host: its address, such as "ssh://ana@10.0.0.2"; "": the docker command's default.
        seconds: the time limit of a command that is given none; None: no limit.
        programs: a folder whose programs the docker command finds first, such as its ssh; "":
            none.
        variables: variables for these programs.
    """

    host: str = ""
    seconds: float | None = None
    programs: str = ""
    variables: tuple[tuple[str, str], ...] = ()

    def start(
        self,
        arguments: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        source: int | None = None,
        output: int | None = None,
        errors: int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start `docker …` in a new session, which a terminal's Ctrl-C does not reach.

        Raises:
            EndError: there is no such command.
        """
        where = ("--host", self.host) if self.host else ()
        try:
            return processes.start(
                ["docker", *where, *arguments],
                env=self._environ(environ),
                stdin=subprocess.DEVNULL if source is None else source,
                stdout=output,
                stderr=errors,
            )
        except FileNotFoundError:
            raise EndError(EXIT_ERROR, NO_DOCKER) from None

    def _environ(self, environ: Mapping[str, str] | None) -> Mapping[str, str] | None:
        if not self.programs:
            return environ
        given = os.environ if environ is None else environ
        path = f"{self.programs}{os.pathsep}{given.get('PATH', os.defpath)}"
        return {**given, **dict(self.variables), "PATH": path}

    def ask(
        self,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run `docker …` and return its exit code and its output.

        Args:
            arguments: the command's arguments.
            environ: its variables; None: this process's.
            seconds: its time limit, after which it counts as failed; None: the engine's.

        Raises:
            EndError: there is no such command.
        """
        pipe = subprocess.PIPE
        process = self.start(arguments, environ=environ, output=pipe, errors=pipe)
        return answer_of(process, seconds or self.seconds)

    def output_of(self, *arguments: str) -> str:
        """Run `docker …` and return its output, without the last newline.

        Raises:
            EndError: it failed; the message is the engine's.
        """
        ended = self.ask(*arguments)
        if ended.returncode:
            raise EndError(EXIT_ERROR, ended.stderr.strip())
        return ended.stdout.rstrip("\n")

    def inspected(self, container: str, template: str) -> str:
        """Return the output of `docker inspect` for a container; empty if the container is gone."""
        return self.ask("inspect", "--format", template, container).stdout.strip()

    def time(self) -> str:
        """Return the engine's time. Its virtual machine's clock may differ from this machine's."""
        return self.output_of("info", "--format", "{{.SystemTime}}")


LOCAL = Engine()
start, ask, output_of, inspected = LOCAL.start, LOCAL.ask, LOCAL.output_of, LOCAL.inspected
time_of_engine = LOCAL.time


def is_gone(said: str) -> bool:
    """Tell whether a docker command failed because there is no such container."""
    return any(text in said.lower() for text in ("no such container", "no such object"))


def lines_of(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yield a process's output, line by line, until it ends."""
    with cast("IO[bytes]", process.stdout) as output:
        yield from output
    process.wait()


def refuse_missing(image: str) -> None:
    """Make sure that an image is on this machine.

    Raises:
        EndError: it is not, or the engine does not answer.
    """
    ended = ask("image", "inspect", "--format", "{{.Id}}", image)
    if not ended.returncode:
        return
    if "no such image" in ended.stderr.lower():
        raise EndError(EXIT_ERROR, f"there is no image {image} here; `make build` builds it.")
    raise EndError(EXIT_ERROR, ended.stderr.strip())


def refuse_elsewhere(image: str, folder: Path) -> None:
    """Make sure that the engine can mount a folder of this machine.

    Raises:
        EndError: it is on another machine, by DOCKER_HOST or by Docker's context.
    """
    asked = ask("context", "inspect", "--format", "{{.Name}} {{.Endpoints.docker.Host}}")
    context, _, where = asked.stdout.strip().partition(" ")
    if not where.startswith(BY_NETWORK):
        return
    # An engine in a container beside this one may have the same folders.
    made = ask("create", "--mount", f'type=bind,"source={folder}",target=/mnt', image)
    if not made.returncode:
        ask("rm", made.stdout.strip())
        return
    accepted = (
        "an engine that has this machine's folders. `make up HOSTS=` trains on other machines"
    )
    received = f'received "{where}", which cannot mount {folder} ({made.stderr.strip()})'
    setting = "DOCKER_HOST" if context == DEFAULT_CONTEXT else f"the Docker context {context}"
    raise EndError(EXIT_CONFIGURATION, f"{setting}: {received}; accepted: {accepted}.")


def refuse_other_users(user: User) -> None:
    """Make sure that the workers' user is the same one in a container and on this machine.

    Otherwise the workers could not write into a folder that the user has made.

    Raises:
        EndError: the engine gives users other numbers, except for root if it is rootless.
    """
    options = ask("info", "--format", "{{json .SecurityOptions}}").stdout
    if REMAPPED in options:
        accepted = "an engine without userns-remap, in which workers can write the user's folders"
        raise EndError(EXIT_CONFIGURATION, f"Docker: received userns-remap; accepted: {accepted}.")
    if ROOTLESS in options and (user.uid, user.gid) != ("0", "0"):
        accepted = "0 and 0, which is you in a container of rootless Docker"
        received = f"received {user.uid} and {user.gid}"
        raise EndError(EXIT_CONFIGURATION, f"RUN_UID, RUN_GID: {received}; accepted: {accepted}.")


def is_for_gpus(image: str) -> bool:
    """Tell whether an image is for GPUs: by its label, or by its name if it has no such label."""
    form = f'{{{{index .Config.Labels "{ACCELERATORS}"}}}}'
    label = ask("image", "inspect", "--format", form, image).stdout.strip()
    return "gpu" in label.split(",") if label else "gpu" in image


def has_nvidia() -> bool:
    """Tell whether the engine can give containers NVIDIA GPUs."""
    return '"nvidia"' in ask("info", "--format", "{{json .Runtimes}}").stdout


@dataclass(frozen=True)
class WorkerContainer:
    """A worker's container, as the engine reports it.

    Attributes:
        service: the worker.
        status: the engine's word: running, exited, created, paused …
        code: the exit code, if it has ended.
        container: its full id.
        started: the time of its last start, by the engine's clock.
        up: the identity of the process that runs its cluster; "-": there is none.
    """

    service: str
    status: str
    code: int
    container: str
    started: str
    up: str


@dataclass(frozen=True)
class Project:
    """The containers of one cluster, by its Compose project, on one engine.

    Attributes:
        name: the project.
        engine: the engine.
        start: the start that created them, a label; "": they have no such label.
    """

    name: str
    engine: Engine = LOCAL
    start: str = ""

    def containers(self, *options: str) -> list[str]:
        """Return the containers' ids, without TensorBoard's.

        Args:
            options: options of `docker ps`.
        """
        template = f'{{{{.ID}}}} {{{{.Label "{SERVICE}"}}}} {{{{.Label "{START}"}}}}'
        chosen = ["--filter", f"label={PROJECT}={self.name}", *options]
        lines = self.engine.output_of(
            "ps", "--all", *chosen, "--no-trunc", "--format", template
        ).splitlines()
        columns = [f"{line}  ".split(" ")[:3] for line in lines]
        return [
            container
            for container, service, start in columns
            if service != TENSORBOARD and start == self.start
        ]

    def running(self) -> list[str]:
        """Return the ids of the running containers."""
        return self.containers("--filter", "status=running")

    def workers(self, *options: str) -> list[WorkerContainer]:
        """Return the workers in the order of their numbers.

        Args:
            options: options of `docker ps`.

        Raises:
            EndError: the engine does not answer.
        """
        ids = self.containers(*options)
        if not ids:
            return []
        ended = self.engine.ask("inspect", "--format", WORKER, *ids)
        # If a container has just been removed, `inspect` fails and still describes the others.
        if ended.returncode and not is_gone(ended.stderr):
            raise EndError(EXIT_ERROR, ended.stderr.strip())
        lines = ended.stdout.splitlines()
        parts = [fields for line in lines if len(fields := line.split()) == FIELDS]
        found = [WorkerContainer(one[0], one[1], int(one[2]), *one[3:]) for one in parts]
        workers = (one for one in found if one.service.startswith("worker-"))
        return sorted(workers, key=lambda one: one.service)
