"""Tests whether each machine reaches each other machine on the port of its worker."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Timer
from typing import IO, cast

from machines.facts import Facts, address_of
from machines.machine import Machine, at_once, last_line

LISTEN_AND_DIAL = """
import socket, sys, threading, time
own, others = int(sys.argv[1]), sys.argv[2:]
try:
    server = socket.create_server(("", own), family=socket.AF_INET6, dualstack_ipv6=True)
except (OSError, ValueError):
    server = socket.create_server(("", own))
def answer():
    while True:
        server.accept()[0].close()
threading.Thread(target=answer, daemon=True).start()
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
"""What each machine runs in the image before there are workers: it answers on the worker's port,
and tries those of all others. It ends when its input does."""
MOST_SECONDS = 60
RUN = (
    *("docker", "run", "--rm", "--interactive", "--network", "host", "--read-only"),
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges:true", "--entrypoint", "python"),
)


def addresses(all_facts: Sequence[Facts]) -> tuple[str, ...]:
    """Return WORKER_HOSTS, in the order of the machines."""
    found = at_once(lambda one: address_of(one.machine), all_facts)
    return tuple(f"{address}:{one.machine.host.port}" for address, one in zip(found, all_facts))


def problems(image: str, all_facts: Sequence[Facts]) -> list[str]:
    """Let each machine reach each other one; return a sentence for each that does not."""
    if len(all_facts) < 2:  # noqa: PLR2004
        return []
    hosts = addresses(all_facts)
    tries = [
        _Try(one.machine, _start(one.machine, image, own, hosts))
        for one, own in zip(all_facts, hosts)
    ]
    told = at_once(_Try.read, tries)
    ends = [one.end() for one in tries]  # only now: the others have reached them
    names = {address: one.machine.name for address, one in zip(hosts, all_facts)}
    return [
        sentence
        for one, lines, end in zip(tries, told, ends)
        for sentence in one.sentences(lines, end, names)
    ]


def _start(machine: Machine, image: str, own: str, hosts: Sequence[str]) -> subprocess.Popen[bytes]:
    others = [one for one in hosts if one != own]
    command = [*RUN, image, "-c", LISTEN_AND_DIAL, machine.host.port, *others]
    pipe = subprocess.PIPE
    return machine.start(" ".join(map(shlex.quote, command)), source=pipe, output=pipe)


@dataclass(frozen=True)
class _Try:
    """What one machine tries."""

    machine: Machine
    process: subprocess.Popen[bytes]

    def read(self) -> list[str]:
        """Return the lines about what it did not reach, when it has tried all."""
        return list(self._lines())

    def _lines(self) -> Iterator[str]:
        late = Timer(MOST_SECONDS, self.process.kill)
        late.start()
        for line in cast("IO[bytes]", self.process.stdout):
            text = line.decode(errors="replace").strip()
            if text == "tried":
                break
            yield text
        late.cancel()

    def end(self) -> str:
        """End it; return what went wrong with it as a whole."""
        _, err = self.process.communicate()
        return last_line(err.decode(errors="replace")) if self.process.returncode else ""

    def sentences(self, lines: Sequence[str], end: str, names: dict[str, str]) -> Iterator[str]:
        """Yield what is wrong."""
        for line in lines:
            other, _, why = line.partition("\t")
            yield (
                f"{self.machine.name}: it does not reach {names.get(other, other)} at {other} "
                f"({why}). Open the port, or name another address with address="
            )
        if end:
            yield f"{self.machine.name}: the connections could not be tried: {end}"
