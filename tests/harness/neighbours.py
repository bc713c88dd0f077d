"""Entrypoints on the loopback interface. Their commands form rings, and tests kill them."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from entrypoint.status.reading import Status, read_all
from harness.ports import free_ports
from harness.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0
"""Every wait is shorter, even on a busy machine."""
RINGS = f"""
import json, os, pathlib, select, signal, sys
sys.path.insert(0, {str(ROOT / "trainer")!r})
from cluster_trainer.collectives.neighbours import VARIABLE, NeighboursError, join, who_waits

def say(**said):
    print(json.dumps(said | {{"pid": os.getpid()}}), flush=True)

broken, breaks = os.pipe()
signal.signal(signal.SIGUSR1, lambda *_: os.write(breaks, b"1"))
say(begins=True, comes_late=os.environ["CLUSTER_COMES_LATE"])
if os.environ["RESTART_COUNT"] in os.environ.get("FAILING_RESTARTS", "").split():
    sys.exit(1)
while True:
    try:
        found = join(os.environ)
    except NeighboursError as error:
        say(error=str(error), code=error.code)
        sys.exit(error.code)
    place = {{"rank": found.rank, "size": found.size, "generation": found.generation}}
    with found.left, found.right:
        try:
            pathlib.Path(os.environ["PROGRESS_FILE"]).touch()
            found.right.sendall(b"%d %d" % (found.rank, found.generation))
            say(ring=place, left=found.left.recv(100).decode())
            asks = int(os.environ[VARIABLE])
            while True:
                ready, *_ = select.select([found.left, found.right, broken, asks], [], [])
                if asks in ready and who_waits(os.environ) != ():
                    break  # None: the socket's end, of which `join` says more
                if broken in ready:
                    os.read(broken, 1)
                    break
                if not ready[0].recv(100):
                    break
        except OSError:
            pass
"""
"""A command that prints its ring, and requests a new one when the ring breaks or a worker waits to
join. SIGUSR1 makes it leave its ring. In restarts whose numbers are in FAILING_RESTARTS, it ends
before its first request."""


class Connected(Protocol):
    """The result of `join`."""

    rank: int
    size: int
    left: socket.socket
    right: socket.socket


def check_circle(rings: Iterable[Connected]) -> None:
    """Send from every rank to both neighbours; fail unless each message reaches its neighbour."""
    for ring in rings:
        ring.right.sendall(b"from %d to the right" % ring.rank)
        ring.left.sendall(b"from %d to the left" % ring.rank)
    for ring in rings:
        ring.left.settimeout(SECONDS)
        ring.right.settimeout(SECONDS)
        size = ring.size
        assert ring.left.recv(100) == b"from %d to the right" % ((ring.rank - 1) % size)
        assert ring.right.recv(100) == b"from %d to the left" % ((ring.rank + 1) % size)


class Entrypoint:
    """One worker's entrypoint, in its own process group, with its own and its command's output."""

    def __init__(self, rank: int, environ: Mapping[str, str], folder: Path) -> None:
        self.rank, self.said, self.lines = rank, [], []
        self._more = threading.Condition()
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "entrypoint", sys.executable, "-c", RINGS],
            cwd=ROOT,
            env={**environ, "TMPDIR": str(folder), "WORKER_INDEX": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        reads = [(self.process.stdout, self._take), (self.process.stderr, self.lines.append)]
        self._threads = [threading.Thread(target=self._read, args=read) for read in reads]
        for thread in self._threads:
            thread.start()

    said: list[dict[str, Any]]
    """The objects that its commands have printed."""
    lines: list[str]
    """The lines that it has printed itself."""

    def _read(self, stream: Iterable[str], take: Callable[[str], None]) -> None:
        for line in stream:
            with self._more:
                take(line.rstrip())
                self._more.notify_all()

    def _take(self, line: str) -> None:
        self.said.append(json.loads(line))

    def wait_for(self, condition: Callable[[Self], object], what: str) -> Any:
        """Wait until a condition is true, and return the condition's value."""
        with self._more:
            found = self._more.wait_for(lambda: condition(self), SECONDS)
        assert found, f"worker-{self.rank} has not come to {what}: {self.said} {self.lines}"
        return found

    def wait_for_line(self, *texts: str) -> str:
        """Wait for a line of the entrypoint that contains all of the texts, and return it."""

        def said(worker: Self) -> str | None:
            return next((line for line in worker.lines if all(t in line for t in texts)), None)

        return self.wait_for(said, str(texts))

    @property
    def ring(self) -> dict[str, Any]:
        """The ring of its command: rank, size, generation, left. It is empty without a ring."""
        last = self.said[-1] if self.said else {}
        return last["ring"] | {"left": last["left"]} if "ring" in last else {}

    @property
    def command(self) -> int:
        """The process id of the command that printed last."""
        if not self.said:  # a worker that has only just been started
            raise ProcessLookupError
        return self.said[-1]["pid"]

    def kill_command(self) -> None:
        """Kill the command, as the kernel does when memory runs out. The entrypoint restarts it."""
        os.kill(self.command, signal.SIGKILL)

    def break_ring(self) -> None:
        """Make the command leave its ring."""
        os.kill(self.command, signal.SIGUSR1)

    def processes(self) -> list[int]:
        """Return all of its processes, the entrypoint first."""
        found = [self.process.pid]
        for one in found:
            with suppress(OSError):
                children = Path(f"/proc/{one}/task/{one}/children").read_text().split()
                found += [int(child) for child in children]
        return found

    def signal_all(self, number: int) -> None:
        """Send a signal to all of its processes, like those of a container."""
        for one in self.processes():
            with suppress(ProcessLookupError):
                os.kill(one, number)

    @property
    def status(self) -> Status:
        """The status that it reports."""
        (status,) = read_all([self.folder])
        return status

    def end(self) -> int:
        """Wait until it has ended; return its exit code."""
        code = self.process.wait(SECONDS)
        for thread in self._threads:
            thread.join(SECONDS)
        return code

    def remove(self) -> None:
        """Kill all of its processes."""
        self.signal_all(signal.SIGKILL)
        self.end()
        self.process.stdout.close()
        self.process.stderr.close()


@dataclass
class Entrypoints:
    """The workers of one cluster. `with` kills them all at its end."""

    size: int
    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    started: list[Entrypoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        ports = free_ports(self.size)
        self.addresses = [(f"127.0.0.{rank + 1}", port) for rank, port in enumerate(ports)]

    def start(self, rank: int) -> Entrypoint:
        """Start one worker."""
        own = {
            "PATH": os.environ["PATH"],
            "WORKER_HOSTS": ",".join(f"{host}:{port}" for host, port in self.addresses),
            "CLUSTER_TOKEN": "a secret that they share",
        }
        folder = self.folder / f"{len(self.started)}"
        self.started.append(Entrypoint(rank, {**own, **self.settings}, folder))
        return self.started[-1]

    def start_all(self) -> tuple[list[Entrypoint], int]:
        """Start all workers, and wait for their first ring; return them and its generation."""
        workers = [self.start(rank) for rank in range(self.size)]
        return workers, self.ring_after(workers, 0)

    def ring_after(self, workers: Sequence[Entrypoint], generation: int) -> int:
        """Wait until these workers are in one newer ring; return that ring's generation."""

        found = generation

        def is_one_ring() -> bool:
            nonlocal found
            rings = [worker.ring for worker in workers]
            found = rings[0].get("generation", 0)
            expected = [_place(rank, len(workers), found) for rank in range(len(workers))]
            return found > generation and rings == expected

        wait_until(is_one_ring, SECONDS, f"a ring after {generation}", lambda: self._logs(workers))
        return found

    def _logs(self, workers: Sequence[Entrypoint]) -> str:
        return "\n".join(f"{one.said[-3:]}\n" + "\n".join(one.lines) for one in workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.started:
            one.remove()


def _place(rank: int, size: int, generation: int) -> dict[str, Any]:
    """Return the output of a command in a ring after it has received from its left neighbour."""
    place = {"rank": rank, "size": size, "generation": generation}
    return place | {"left": f"{(rank - 1) % size} {generation}"}
