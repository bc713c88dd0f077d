"""Starts workers as containers of one processor each, on their own networks.

If the rate is limited, each worker has its own bridge network. On this network, the names of the
other workers lead to `link.py`, which forwards to them.
"""

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from docker import DockerClient
from docker.models.containers import Container

WORKSPACE = Path(__file__).with_name("workspace")
LINK = Path(__file__).with_name("link.py")
PORT = 2222
SECONDS = 900


@dataclass(frozen=True)
class Cluster:
    """The workers to start.

    Attributes:
        image: the name of their image.
        workers: their number.
        folder: a folder of the host; each worker's /runs is a subfolder with its number.
        settings: the environment of all.
        command: the command of each; empty: the trainer.
        together: whether they form a cluster.
        bits_a_second: the rate at which each can send; None: no limit.
        late_seconds: an additional delay of all data; needs a rate.
        first_cpu: the first worker's processor; the others take the next ones, in turn.
    """

    image: str
    workers: int
    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    together: bool = True
    bits_a_second: int | None = None
    first_cpu: int = 0
    late_seconds: float = 0.0


class LostWorkerError(Exception):
    """A worker failed; the text has its last lines."""


@contextmanager
def started(client: DockerClient, cluster: Cluster) -> Iterator[list[Container]]:
    """Yield the workers' containers; remove them at the end, with their networks."""
    name = f"ctb-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        networks = [
            _network(client, stack, f"{name}-{place}")
            for place in range(cluster.workers if cluster.bits_a_second else 1)
        ]
        if cluster.bits_a_second:
            _start_link(client, stack, cluster, networks)
        workers = [
            _create(client, stack, cluster, index, networks[index % len(networks)])
            for index in range(cluster.workers)
        ]
        for worker in workers:  # all at nearly the same time
            worker.start()
        yield workers


def wait(workers: Sequence[Container]) -> None:
    """Wait until all have ended.

    Raises:
        LostWorkerError: one of them ended with a code other than 0.
    """
    for worker in workers:
        code = worker.wait(timeout=SECONDS)["StatusCode"]
        if code:
            last = worker.logs(tail=30).decode(errors="replace")
            raise LostWorkerError(f"{worker.name} has ended with {code}:\n{last}")


def host(index: int) -> str:
    """Return the host name of a worker."""
    return f"worker-{index}"


def addresses(cluster: Cluster) -> list[str]:
    """Return the list of all workers. `link.py` identifies a worker by its port."""
    return [f"{host(index)}:{PORT + index}" for index in range(cluster.workers)]


def _network(client: DockerClient, stack: ExitStack, name: str) -> str:
    network = client.networks.create(name, driver="bridge")
    stack.callback(network.remove)
    return name


def _create(
    client: DockerClient, stack: ExitStack, cluster: Cluster, index: int, network: str
) -> Container:
    place = {"WORKER_HOSTS": ",".join(addresses(cluster)), "WORKER_INDEX": str(index)}
    is_one_of_several = cluster.together and cluster.workers > 1
    folder = cluster.folder / str(index)
    folder.mkdir(parents=True, exist_ok=True)
    worker = client.containers.create(
        cluster.image,
        list(cluster.command),
        name=f"{network}-{host(index)}",
        user=f"{os.getuid()}:{os.getgid()}",
        environment={"PYTHONPATH": "/workspace", **cluster.settings}
        | (place if is_one_of_several else {}),
        volumes=[f"{WORKSPACE}:/workspace:ro", f"{folder}:/runs"],
        cpuset_cpus=str((cluster.first_cpu + index) % (os.cpu_count() or 1)),
        network=network,
        networking_config=_known_as(client, network, [host(index)]),
    )
    stack.callback(worker.remove, force=True, v=True)
    return worker


def _known_as(client: DockerClient, network: str, names: Sequence[str]) -> dict[str, object]:
    return {network: client.api.create_endpoint_config(aliases=list(names))}


def _start_link(
    client: DockerClient, stack: ExitStack, cluster: Cluster, networks: Sequence[str]
) -> None:
    """Start `link.py`. On each worker's network, the names of all other workers lead to it."""
    names = [host(index) for index in range(cluster.workers)]
    targets = {
        str(PORT + index): f"{network}-{host(index)}" for index, network in enumerate(networks)
    }
    link = client.containers.create(
        cluster.image,
        ["/link.py", str(cluster.bits_a_second), json.dumps(targets), str(cluster.late_seconds)],
        entrypoint=["python"],
        name=f"{networks[0]}-link",
        volumes=[f"{LINK}:/link.py:ro"],
        network=networks[0],
        networking_config=_known_as(client, networks[0], names[1:]),
    )
    stack.callback(link.remove, force=True, v=True)
    for index, network in enumerate(networks[1:], 1):
        others = [name for name in names if name != names[index]]
        client.networks.get(network).connect(link, aliases=others)
    link.start()
