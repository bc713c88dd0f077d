"""Measures how long the gate takes to release all workers, and how many messages that needs.

It uses real gates and sockets on the loopback interface: the chief in one process, the members in a
few others, all started at the same time. In a real cluster, each worker has its own processor, and
the network is slower. The chief limits the speed, because every member exchanges messages with it.
"""

import asyncio
import contextlib
import multiprocessing
import resource
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier

from benchmarks.start_up import median
from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import ClusterSpec
from entrypoint.rendezvous.facts import Facts, host_list
from entrypoint.rendezvous.gate import meet
from entrypoint.rendezvous.terms import Terms
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.timing import Timing

PREDICTED = "1,000 workers in 4 s (goal: under 10 s), 13 messages and 4 KB a worker at any number"
WORKERS = (10, 100, 1000)
ROUNDS = 3
MEMBER_PROCESSES = 3
PORTS = range(21_000, 32_000)
"""Below the ports that the kernel gives to sockets that connect (net.ipv4.ip_local_port_range)."""
SETTINGS = {f"TRAINER_SETTING_{number}": "a value" for number in range(20)}
TIMEOUT_SECONDS = 120.0


@dataclass
class Sent:
    """Counts the messages of the gates of one process: each line that a connection writes."""

    messages: int = 0
    bytes: int = 0

    def count(self) -> None:
        """Begin to count."""
        write = Connection._write  # noqa: SLF001 -- all lines are written here

        async def counted(connection: Connection, line: bytes) -> None:
            self.messages += 1
            self.bytes += len(line)
            await write(connection, line)

        Connection._write = counted  # noqa: SLF001


def main() -> None:
    """Measure and print the table."""
    print(f"predicted: {PREDICTED}\n")
    print("| workers | median | lowest | highest | messages | per worker | bytes per worker |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for count in WORKERS:
        rounds = [measure(count) for _ in range(ROUNDS)]
        seconds = [each[0] for each in rounds]
        messages, size = (median([each[1][i] for each in rounds]) for i in range(2))
        cells = [f"{pick(seconds):.2f} s" for pick in (median, min, max)]
        cells += [f"{messages:,}", f"{messages / count:.1f}", f"{size / count:,.0f}"]
        print(f"| {count:,} | " + " | ".join(cells) + " |")


def measure(count: int) -> tuple[float, tuple[int, int]]:
    """Return the seconds until the last worker was released, and messages and bytes in all."""
    context = multiprocessing.get_context("spawn")
    spec = ClusterSpec.of_workers([Address("127.0.0.1", port) for port in free_ports(count)])
    groups = [[0], *(list(range(1, count))[i::MEMBER_PROCESSES] for i in range(MEMBER_PROCESSES))]
    barrier, results = context.Barrier(len(groups) + 1), context.SimpleQueue()
    processes = [
        context.Process(target=run, args=(spec, ranks, barrier, results)) for ranks in groups
    ]
    for process in processes:
        process.start()
    barrier.wait(TIMEOUT_SECONDS)
    began = time.perf_counter()
    sent = [results.get() for _ in groups]
    seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    return seconds, (sum(each[0] for each in sent), sum(each[1] for each in sent))


def run(spec: ClusterSpec, ranks: list[int], barrier: Barrier, results: object) -> None:
    """Pass the gate as these workers, in one process, and return what was sent."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sent = Sent()
    sent.count()
    all_terms = list(workers(spec, ranks))
    barrier.wait(TIMEOUT_SECONDS)
    asyncio.run(meet_all(all_terms))
    results.put((sent.messages, sent.bytes))


def workers(spec: ClusterSpec, ranks: list[int]) -> Iterator[Terms]:
    """Yield the arguments of each worker."""
    facts = Facts(
        hosts=host_list(spec),
        image="0.1.0 (3a4601d)",
        tensorflow="2.21.0",
        gpus_per_worker="8",
        settings=SETTINGS,
    )
    for rank in ranks:
        yield Terms(
            spec=spec,
            task=spec.members[rank].task,
            facts=facts,
            timeout_seconds=TIMEOUT_SECONDS,
            token="a token",  # noqa: S106 -- signatures are measured, too
            say=lambda *_: None,
            timing=Timing(),
        )


async def meet_all(all_terms: list[Terms]) -> None:
    """Pass the gate as all of these workers; raise the first error."""
    await asyncio.gather(*(meet(terms) for terms in all_terms))


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens."""
    found: list[int] = []
    for port in PORTS:
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            found.append(port)
        if len(found) == count:
            break
    return found
