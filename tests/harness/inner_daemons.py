"""Machines with their own Docker engines, each in a container, and a Swarm of them."""

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from docker.models.containers import Container

from harness.waiting import logs_of, pause, wait_inside
from harness.workbench import Workbench

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / "tests/swarm"
IMAGE = "cluster-trainer-swarm:bookworm"
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
BUILD_SECONDS = 600
UP_SECONDS = 60
DEPLOY = ("docker", "stack", "deploy", "--resolve-image", "never", "--compose-file")
# An engine needs these rights in a container; some engines do not allow `--privileged`.
RIGHTS = (
    *("--cap-add=ALL", "--cap-drop=SYS_RESOURCE", "--device-cgroup-rule=a *:* rwm"),
    *("--security-opt=seccomp=unconfined", "--security-opt=systempaths=unconfined"),
    "--tmpfs=/run",  # empty after a loss of power, as on a machine: no socket is left there
)


def build_machine() -> str:
    """Build the machines' image, which stays on the engine; return its name."""
    base = subprocess.run(
        ["scripts/base-image.sh"], cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    return build(FOLDER, base, IMAGE)


def build(folder: Path, base: str, image: str) -> str:
    """Build an image from a folder and a base image, and return its name."""
    given = [f"BASE_IMAGE={base}", *(name for name in PROXIES if os.environ.get(name))]
    arguments = [part for one in given for part in ("--build-arg", one)]
    command = ["docker", "build", "--quiet", *arguments, "--tag", image, str(folder)]
    subprocess.run(command, check=True, timeout=BUILD_SECONDS)
    return image


@dataclass(frozen=True)
class Machine:
    """A machine, which is a container.

    Attributes:
        name: its host name.
        container: its container.
    """

    name: str
    container: Container

    @property
    def address(self) -> str:
        """Its IP address in the machines' network."""
        (network,) = self.container.attrs["NetworkSettings"]["Networks"].values()
        return str(network["IPAddress"])

    def ask(self, *command: str, environment: Mapping[str, str] | None = None) -> str:
        """Run a command on it, and return its standard output.

        Raises:
            AssertionError: it failed; the message contains its output.
        """
        code, (out, err) = self.container.exec_run(
            list(command), environment=dict(environment or {}), demux=True
        )
        assert code == 0, (command, code, out, err)
        return (out or b"").decode()

    def wait(
        self, condition: str, timeout_seconds: float, what: str, logs: Callable[[], str]
    ) -> None:
        """Wait until a shell condition is true on the machine.

        Raises:
            WaitError: it was not true in time.
        """
        wait_inside(self.container, condition, timeout_seconds, what, logs)

    def wait_until_up(self) -> None:
        """Wait until its engine answers."""
        logs = lambda: logs_of(self.container)  # noqa: E731
        self.wait("docker version > /dev/null 2>&1", UP_SECONDS, "its engine answers", logs)

    def load(self, image: str) -> None:
        """Copy an image from this engine to the machine."""
        into = ["docker", "exec", "--interactive", self.container.name, "docker", "load", "--quiet"]
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saved:
            subprocess.run(into, stdin=saved.stdout, check=True, timeout=BUILD_SECONDS)

    def switch_off(self) -> None:
        """Kill all of its processes, as a loss of power does."""
        self.container.kill()

    def switch_on(self) -> None:
        """Start it again."""
        self.container.start()
        self.wait_until_up()

    @contextmanager
    def dropping(self, *packets: str) -> Iterator[None]:
        """Drop packets that arrive, as a firewall does. `docker exec` still works.

        Args:
            packets: the packets to drop, as options of `iptables`; none: all.
        """
        rule = ["INPUT", "--in-interface", "eth0", *packets, "--jump", "DROP"]
        self.ask("iptables", "--wait", "--insert", *rule)
        try:
            yield
        finally:
            self.ask("iptables", "--wait", "--delete", *rule)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze all of its processes. Its kernel still accepts connections."""
        pause(self.container)
        try:
            yield
        finally:
            self.container.unpause()
            self.wait_until_up()


@contextmanager
def started_machines(
    bench: Workbench, names: Sequence[str], image: str, mount: str
) -> Iterator[list[Machine]]:
    """Start machines, wait until their engines answer, and remove the machines at the end.

    They reach each other by their names.

    Args:
        bench: the engine, and the source of new names.
        names: the names of the machines.
        image: the machines' image.
        mount: a mount for each machine, in the format of `docker run --volume`.
    """
    network = bench.client.networks.create(bench.new_name("network"), internal=True)
    volumes, started = [], []
    try:
        for name in names:
            volumes.append(bench.client.volumes.create(bench.new_name("volume")))
            # The command line is used because the SDK does not support `systempaths`.
            line = ["docker", "run", "--detach", f"--name={network.name}-{name}", *RIGHTS]
            line += [f"--hostname={name}", f"--network={network.name}", f"--network-alias={name}"]
            line += [f"--volume={volumes[-1].name}:/var/lib/docker", f"--volume={mount}", image]
            subprocess.run(line, check=True, stdout=subprocess.DEVNULL, timeout=UP_SECONDS)
            container = bench.client.containers.get(f"{network.name}-{name}")
            started.append(Machine(name, container))
        for machine in started:
            machine.wait_until_up()
        yield started
    finally:
        for machine in started:
            machine.container.remove(force=True, v=True)
        for volume in volumes:
            volume.remove()
        network.remove()


@contextmanager
def machines(bench: Workbench, names: Sequence[str]) -> Iterator[list[Machine]]:
    """Start machines that have the stack files, and remove them at the end."""
    mount = f"{PROJECT}/compose:/compose:ro"
    with started_machines(bench, names, build_machine(), mount) as started:
        yield started


@dataclass(frozen=True)
class Swarm:
    """Machines that are a Swarm; the first is its manager."""

    machines: Sequence[Machine]

    @property
    def manager(self) -> Machine:
        """The manager, which gets all commands."""
        return self.machines[0]

    def join(self) -> None:
        """Join the machines to a Swarm."""
        self.manager.ask("docker", "swarm", "init", "--advertise-addr", "eth0")
        token = self.manager.ask("docker", "swarm", "join-token", "--quiet", "worker").strip()
        for machine in self.machines[1:]:
            address = f"{self.manager.ask('hostname', '--ip-address').strip()}:2377"
            machine.ask("docker", "swarm", "join", "--token", token, address)

    def wait_until_ready(self, number: int) -> None:
        """Wait until exactly `number` machines are ready."""
        states = "docker node ls --format '{{.Status}}'"
        ready = f"""[ "$({states} | grep --count Ready)" = {number} ]"""
        what = f"{number} nodes are ready"
        self.manager.wait(ready, UP_SECONDS, what, lambda: self.manager.ask("docker", "node", "ls"))


@dataclass(frozen=True)
class Stack:
    """A stack whose service is called `worker`.

    Attributes:
        swarm: its Swarm.
        name: the stack's name.
        environment: the variables of the stack file.
    """

    swarm: Swarm
    name: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def deploy(self, file: str) -> None:
        """Deploy a stack file, by its path on the manager."""
        self.swarm.manager.ask(*DEPLOY, file, self.name, environment=self.environment)

    def deploy_text(self, text: str) -> None:
        """Deploy the text of a stack file."""
        deploy = f'printf %s "$1" | {shlex.join([*DEPLOY, "-", self.name])}'
        self.swarm.manager.ask("bash", "-c", deploy, "bash", text)

    def output(self) -> str:
        """Return its tasks, and the output of workers whose nodes are up."""
        service = f"{self.name}_worker"
        show = f"docker service ps --no-trunc {service}; timeout 10 docker service logs {service}"
        return self.swarm.manager.ask("bash", "-c", f"({show}) 2>&1; true")

    def wait_for_text(self, text: str, timeout_seconds: float) -> None:
        """Wait until a worker has printed `text`."""
        shown = f"timeout 10 docker service logs {self.name}_worker 2>&1"
        printed = f"{shown} | grep --quiet --fixed-strings {shlex.quote(text)}"
        self.swarm.manager.wait(printed, timeout_seconds, f"it prints {text!r}", self.output)

    def wait_until_complete(self, workers: int, timeout_seconds: float) -> None:
        """Wait until the newest task of each worker is complete."""
        # The names of older tasks of a slot begin with a line-drawing character.
        tasks = (
            f"docker service ps --format '{{{{.Name}}}} {{{{.CurrentState}}}}' {self.name}_worker"
        )
        newest = rf"{tasks} | grep --extended-regexp --count '^{self.name}_worker\.[0-9]+ Complete'"
        done = f'[ "$({newest})" = {workers} ]'
        self.swarm.manager.wait(done, timeout_seconds, "all workers are done", self.output)

    def results(self) -> Mapping[str, Sequence[Mapping[str, object]]]:
        """Return the results of finished workers, by the worker's folder.

        A worker that has moved may have left a result on several machines.
        """
        find = f"/var/lib/docker/volumes/{self.name}_runs/_data/*/worker-*/result.json"
        program = f'for file in {find}; do [ ! -e "$file" ] || (echo "$file"; cat "$file"); done'
        found: dict[str, list] = {}
        for machine in self.swarm.machines:
            machine.container.reload()
            if machine.container.status != "running":
                continue
            for path, result in _documents(machine.ask("bash", "-c", program)):
                if result["status"] == "done":
                    found.setdefault(Path(path).parent.name, []).append(result)
        return found

    def remove(self) -> None:
        """Remove its service, its network, and its volumes on all running machines."""
        self.swarm.manager.ask("docker", "stack", "rm", self.name)
        for machine in self.swarm.machines:
            gone = f'[ -z "$(docker ps --all --quiet --filter name={self.name}_)" ]'
            machine.wait(gone, UP_SECONDS, "the stack's containers are gone", self.output)
            volumes = f"docker volume ls --quiet --filter name={self.name}_"
            machine.ask("bash", "-c", f"{volumes} | xargs --no-run-if-empty docker volume rm")


def _documents(text: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield each path with its JSON document. The path is a line; the document follows it."""
    decoder = json.JSONDecoder()
    while text.strip():
        path, _, text = text.lstrip().partition("\n")
        document, end = decoder.raw_decode(text.lstrip())
        text = text.lstrip()[end:]
        yield path, document
