"""Workers as `docker run` starts them: containers on a network of their own, one list of names."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from docker.models.containers import Container

from harness.workbench import Workbench


@contextmanager
def running_workers(
    bench: Workbench, *command: str, environment: Mapping[str, str], **options: object
) -> Iterator[list[Container]]:
    """Start two workers, yield their containers, and remove these and the network at the end.

    The network reaches nothing beyond the two: whatever they need has to be there.
    """
    network = bench.client.networks.create(bench.new_name("network"), internal=True)
    names = [f"{network.name}-worker-{index}" for index in range(2)]
    started: list[Container] = []
    try:
        for index, name in enumerate(names):
            place = {"WORKER_HOSTS": ",".join(names), "WORKER_INDEX": str(index)}
            own = {"name": name, "network": network.name, "environment": place | environment}
            started.append(bench.start(*command, **own, **options))
        yield started
    finally:
        for container in started:
            container.remove(force=True, v=True)
        network.remove()
