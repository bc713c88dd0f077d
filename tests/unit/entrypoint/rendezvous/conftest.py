"""Gates on this machine's loopback addresses: real sockets, each worker a thread or a process."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import ClusterSpec, Member, Task
from entrypoint.rendezvous.facts import Facts
from entrypoint.rendezvous.gate import pass_gate
from entrypoint.rendezvous.terms import Terms
from entrypoint.rendezvous.transport.timing import Timing
from harness.gates import facts_of, moved, tasks_of
from harness.ports import free_ports
from harness.timing import QUICK

ROOT = Path(__file__).resolve().parents[4]
LONG_SECONDS = 20.0
"""Longer than any wait in these tests takes on a busy machine."""


class Said:
    """The lines that a worker has printed so far."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = threading.Condition()

    def add(self, line: str) -> None:
        with self._more:
            self.lines.append(line)
            self._more.notify_all()

    def wait_for(self, *texts: str) -> str:
        """Wait for a line that contains all of the texts, and return the first one."""

        def found() -> str | None:
            return next((line for line in self.lines if all(t in line for t in texts)), None)

        with self._more:
            line = self._more.wait_for(found, LONG_SECONDS)
            assert line, f"nobody said {texts} but {self.lines}"
            return line


class Worker(Said):
    """One gate in a thread. After its release, it checks that its own port is free for gRPC.

    It also checks that all ports are closed, unless `expects_all_closed=False`.
    """

    def __init__(self, task: Task, spec: ClusterSpec, facts: Facts, **options: object) -> None:
        super().__init__()
        self.task, self.error, self.seconds = task, None, 0.0
        self._expects_all_closed = options.pop("expects_all_closed", True)
        self._arguments = (spec, task, facts)
        self._options = {"token": None, "timeout_seconds": LONG_SECONDS, "timing": QUICK} | options
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        begin = time.monotonic()
        try:
            say = lambda level, line: self.add(f"{level} {line}")  # noqa: E731
            spec, task, facts = self._arguments
            pass_gate(Terms(spec=spec, task=task, facts=facts, **self._options, say=say))
            for member in spec.members if self._expects_all_closed else ():
                refuse_a_gate(member.address)
            take_like_grpc(next(m.address.port for m in spec.members if m.task == task))
        except Exception as error:  # noqa: BLE001
            self.error = error
        self.seconds = time.monotonic() - begin

    def end(self) -> Exception | None:
        """Wait for the end. Return the error, or None after a release."""
        self._thread.join(LONG_SECONDS * 2)
        assert not self._thread.is_alive(), self.lines
        return self.error


def refuse_a_gate(address: Address) -> None:
    """Fail if a gate still greets a connection. All gates close before any worker goes on."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection((address.host, address.port), 1) as c,
    ):
        assert not c.recv(100).startswith(b"cluster-trainer-gate")


def take_like_grpc(port: int) -> None:
    """Listen on the port at once, as gRPC does (tcp_server_utils_posix_common.cc)."""
    with socket.socket() as straggler:
        assert straggler.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("", port))
        server.listen()


@dataclass
class Forward:
    """A forwarded port, as with Docker's -p. It records what the last connection sent."""

    target: int
    port: int = 0
    recorded: bytes = b""
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it was closed before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                with accepted, contextlib.suppress(ConnectionRefusedError):
                    self._join(accepted)

    def _join(self, accepted: socket.socket) -> None:
        with socket.create_connection((self.host, self.target)) as dialled:
            self.recorded = b""
            back = threading.Thread(target=self._pass, args=(dialled, accepted))
            back.start()
            self._pass(accepted, dialled, record=True)
            back.join()

    def _pass(self, source: socket.socket, sink: socket.socket, *, record: bool = False) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(4096):
                self.recorded += chunk if record else b""
                sink.sendall(chunk)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def forward() -> Iterator[Callable[..., Forward]]:
    """Return a function that forwards a port, until the test ends."""
    made: list[Forward] = []

    def make(target: int, port: int = 0, host: str = "127.0.0.1") -> Forward:
        made.append(Forward(target, port, host=host))
        return made[-1]

    yield make
    for one in made:
        one.close()


@dataclass
class Cluster:
    """Addresses for some workers, and the workers that were started."""

    spec: ClusterSpec
    workers: list[Worker] = field(default_factory=list)

    @property
    def facts(self) -> Facts:
        return facts_of(self.spec)

    def member(self, rank: int) -> Member:
        return self.spec.members[rank]

    def start(self, rank: int, *, facts: Facts | None = None, **options: object) -> Worker:
        """Start one worker. `spec=` gives it a list that differs from the cluster's."""
        spec = options.pop("spec", self.spec)
        task = options.pop("task", self.member(rank).task)
        worker = Worker(task, spec, facts or self.facts, **options)
        self.workers.append(worker)
        return worker

    def start_all(self, *ranks: int, **options: object) -> list[Worker]:
        """Start the workers of these ranks, or all workers."""
        return [self.start(rank, **options) for rank in ranks or range(len(self.spec.members))]

    def terms(self, rank: int, facts: Facts, timing: Timing) -> Terms:
        """Return the terms for a gate in this thread."""
        return Terms(
            spec=self.spec,
            task=self.member(rank).task,
            facts=facts,
            timeout_seconds=LONG_SECONDS,
            token=None,
            say=lambda *_: None,
            timing=timing,
        )

    def moved(self, **places: str) -> ClusterSpec:
        """Return the spec with other addresses; see `harness.gates.moved`."""
        return moved(self.spec, **places)


@pytest.fixture
def cluster() -> Iterator[Callable[..., Cluster]]:
    """Return a function that makes a cluster. When the test ends, wait for its workers."""
    made: list[Cluster] = []

    def make(count: int, *, with_chief: bool = False) -> Cluster:
        ports = free_ports(count)
        addresses = [Address(f"127.0.0.{rank + 1}", port) for rank, port in enumerate(ports)]
        tasks = tasks_of(count, with_chief=with_chief)
        members = [Member(task, address) for task, address in zip(tasks, addresses, strict=True)]
        made.append(Cluster(ClusterSpec(tuple(members))))
        return made[-1]

    yield make
    for one in made:
        for worker in one.workers:
            worker.end()
