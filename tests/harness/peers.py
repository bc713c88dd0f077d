"""Workers started one by one, as with `docker run`. Tests start some late, wrongly or never."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from docker.models.containers import Container

from harness.packages import as_mounts
from harness.workbench import Workbench

PORT = 2222


@dataclass(frozen=True)
class Peers:
    """Containers on their own network, which has no access to anything else.

    `with` removes the containers and the network at its end.

    Attributes:
        bench: the engine and the image.
        network: the network's name; the workers' names begin with it.
        count: the number of workers in WORKER_HOSTS.
        started: the containers so far.
    """

    bench: Workbench
    network: str
    count: int
    started: list[Container] = field(default_factory=list)

    def name(self, index: int) -> str:
        """Return a worker's host name."""
        return f"{self.network}-worker-{index}"

    def address(self, index: int) -> str:
        """Return a worker's address in WORKER_HOSTS."""
        return f"{self.name(index)}:{PORT}"

    @property
    def hosts(self) -> str:
        """The value of WORKER_HOSTS: the list of all workers."""
        return ",".join(self.address(index) for index in range(self.count))

    def start(self, index: int, *command: str, **settings: object) -> Container:
        """Start the container of a worker.

        Settings in capitals, or with a name that ends with _proxy, are environment variables. They
        override WORKER_HOSTS, WORKER_INDEX and VERBOSE. The others are options of the Docker SDK.
        """
        environment = {"WORKER_HOSTS": self.hosts, "WORKER_INDEX": str(index), "VERBOSE": "1"}
        variables = [name for name in settings if name.isupper() or name.endswith("_proxy")]
        environment |= {name: settings[name] for name in variables}
        options = {name: value for name, value in settings.items() if name not in variables}
        own = {"name": self.name(index), "network": self.network, "environment": environment}
        if "image" not in options:  # another image has other packages
            own["mounts"] = as_mounts(self.bench.packages)
        self.started.append(self.bench.start(*command, **own, **options))
        return self.started[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for container in self.started:
            container.remove(force=True, v=True)
        self.bench.client.networks.get(self.network).remove()


def make_peers(bench: Workbench, count: int) -> Peers:
    """Create the network for `count` workers."""
    network = bench.client.networks.create(bench.new_name("network"), internal=True)
    return Peers(bench, network.name, count)


@contextmanager
def running_workers(
    bench: Workbench, *command: str, environment: Mapping[str, str], **options: object
) -> Iterator[list[Container]]:
    """Start two workers with the same command, yield their containers, and remove them."""
    with make_peers(bench, 2) as cluster:
        yield [cluster.start(index, *command, **environment, **options) for index in range(2)]
