"""Tests whether each machine reaches each other machine on the port of its worker."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Timer
from typing import IO, cast

from local_cluster import processes
from machines.checks.facts import Facts
from machines.checks.own import Own
from machines.machine import NEVER_PULLED, Machine, address_of, at_once, last_line

LISTEN_AND_DIAL = """
import os, socket, sys, threading, time
late = threading.Timer(120, os._exit, (1,))
late.daemon = True
late.start()
own, others = int(sys.argv[1]), sys.argv[2:]
def listen():
    try:
        return socket.create_server(("", own), family=socket.AF_INET6, dualstack_ipv6=True)
    except (OSError, ValueError):
        return socket.create_server(("", own))
def answer(server):
    while True:
        server.accept()[0].close()
if own:
    threading.Thread(target=answer, args=(listen(),), daemon=True).start()
end = time.monotonic() + 15
def dial(other):
    host, _, port = other.rpartition(":")
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), 3).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                print(other, error, sep="\\t", flush=True)
                return
            time.sleep(0.2)
threads = [threading.Thread(target=dial, args=(other,)) for other in others]
for one in threads:
    one.start()
for one in threads:
    one.join()
print("tried", flush=True)
sys.stdin.read()
"""
"""A program that runs in the image on each machine before the workers start. It listens on the
worker's port, and connects to the ports of the others. With port 0, it does not listen, because a
worker has the port. It ends when its standard input is closed, and in any case after two minutes.
An SSH server may not notice for hours that the operator's computer has lost its network, and the
program would keep the worker's port."""
IN_USE = os.strerror(errno.EADDRINUSE)
MOST_SECONDS = 60
RUN = (
    *("docker", "run", *NEVER_PULLED, "--rm", "--interactive", "--network", "host", "--read-only"),
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges:true", "--entrypoint", "python"),
)


def addresses(all_facts: Sequence[Facts]) -> tuple[str, ...]:
    """Return the addresses for WORKER_HOSTS, in the order of the machines."""
    found = at_once(lambda one: address_of(one.machine), all_facts)
    return tuple(f"{address}:{one.machine.host.port}" for address, one in zip(found, all_facts))


def problems(image: str, all_facts: Sequence[Facts], own: Own) -> list[str]:
    """Test the connection from each machine to each other; return a sentence for each failure.

    A running worker that this start replaces keeps its port. Then its machine only connects to the
    others, and they connect to its port only if the worker listens on it now.
    """
    if len(all_facts) < 2:  # noqa: PLR2004
        return []
    hosts = addresses(all_facts)
    places = [_Place(one, at, is_busy=_is_busy(one, own)) for one, at in zip(all_facts, hosts)]
    tries = [_Try(one.machine, _start(image, one, _others(one, places))) for one in places]
    told = at_once(_Try.read, tries)
    ends = [one.end() for one in tries]  # not earlier: the others must be able to reach them
    names = {address: one.machine.name for address, one in zip(hosts, all_facts)}
    return [
        sentence
        for one, lines, end in zip(tries, told, ends)
        for sentence in one.sentences(lines, end, names)
    ]


@dataclass(frozen=True)
class _Place:
    """A machine in the test.

    Attributes:
        facts: the machine's facts.
        address: its worker's address.
        is_busy: whether a worker that this start replaces has the port.
    """

    facts: Facts
    address: str
    is_busy: bool

    @property
    def machine(self) -> Machine:
        return self.facts.machine

    @property
    def answers(self) -> bool:
        """Whether a program listens on its port during the test."""
        return not self.is_busy or int(self.machine.host.port) in self.facts.listens


def _is_busy(facts: Facts, own: Own) -> bool:
    return int(facts.machine.host.port) in own.running(facts).values()


def _others(place: _Place, places: Sequence[_Place]) -> list[str]:
    """Return the addresses that a machine tests, without those of workers it has trained with."""
    return [
        one.address
        for one in places
        if one is not place and one.answers and not (one.is_busy and place.is_busy)
    ]


def _start(image: str, place: _Place, others: Sequence[str]) -> subprocess.Popen[bytes]:
    port = "0" if place.is_busy else place.machine.host.port
    command = [*RUN, image, "-c", LISTEN_AND_DIAL, port, *others]
    pipe = subprocess.PIPE
    return place.machine.start(" ".join(map(shlex.quote, command)), source=pipe, output=pipe)


@dataclass(frozen=True)
class _Try:
    """The test on one machine, while it runs."""

    machine: Machine
    process: subprocess.Popen[bytes]

    def read(self) -> list[str]:
        """Return a line for each address that it did not reach, once it has tried all."""
        return list(self._lines())

    def _lines(self) -> Iterator[str]:
        late = Timer(MOST_SECONDS, processes.kill, [self.process])
        late.start()
        for line in cast("IO[bytes]", self.process.stdout):
            text = line.decode(errors="replace").strip()
            if text == "tried":
                break
            yield text
        late.cancel()

    def end(self) -> str:
        """End the program; return the reason if the program itself failed, otherwise ""."""
        _, err = self.process.communicate()
        return last_line(err.decode(errors="replace")) if self.process.returncode else ""

    def sentences(self, lines: Sequence[str], end: str, names: dict[str, str]) -> Iterator[str]:
        """Yield a sentence for each problem."""
        for line in lines:
            other, _, why = line.partition("\t")
            yield (
                f"{self.machine.name}: it does not reach {names.get(other, other)} at {other} "
                f"({why}). Open the port, or name another address with address="
            )
        if IN_USE in end:
            port = self.machine.host.port
            yield (
                f"{self.machine.name}: port {port} was taken during the test of the connections. "
                "If another entry of HOSTS is the same machine, give each its own port="
            )
        elif end:
            yield f"{self.machine.name}: the connections could not be tested: {end}"
