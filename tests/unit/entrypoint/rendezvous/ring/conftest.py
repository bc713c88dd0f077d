"""Rings on this machine's loopback addresses: real sockets, each worker's process a thread."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from cluster_trainer.collectives.neighbours import Neighbours, join
from entrypoint.rendezvous.attempt import Given, Say
from entrypoint.rendezvous.gate import released
from entrypoint.rendezvous.ring.regroup import Gate, Group
from entrypoint.rendezvous.ring.serve import serve
from entrypoint.rendezvous.transport.timing import Timing
from entrypoint.supervision.mark import Generations

QUICK = Timing(
    port_seconds=0.3,
    first_line_seconds=0.1,
    line_seconds=0.2,
    look_up_seconds=0.5,
    connect_seconds=0.5,
    greeting_seconds=0.5,
    message_seconds=1.5,
    redial_seconds=0.05,
    probe_seconds=0.1,
    ping_seconds=0.1,
    silent_seconds=1.0,
    collect_seconds=0.4,
)
PATIENT = Timing(
    first_line_seconds=QUICK.first_line_seconds,
    line_seconds=QUICK.line_seconds,
    redial_seconds=QUICK.redial_seconds,
    probe_seconds=QUICK.probe_seconds,
    ping_seconds=QUICK.ping_seconds,
    collect_seconds=QUICK.collect_seconds,
)
"""Where nobody goes silent but this machine."""
LONG_SECONDS = 60.0
"""More than anything here takes on a machine that others use too."""
TOKEN = "a secret that they share"


class Worker:
    """A command's end of the socket, and what answers at the other end, in a thread.

    `gate` are the seconds that it may wait at the gate before another ring; 0: there is no gate.
    With them, only the machine is slow (PATIENT). With `meeting=None` it passes the gate before all
    else, as a command's start does.
    """

    def __init__(self, cluster, rank: int, **options: object) -> None:
        timing = PATIENT if options.get("gate") else QUICK
        self.lines: list[str] = []
        self.is_waiting = False
        self.has_met = threading.Event()
        own, self.commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = Given(
            spec=cluster.spec,
            task=cluster.member(options.get("task", rank)).task,
            facts=replace(cluster.facts, **options.get("facts", {})),
            timeout_seconds=options.get("timeout_seconds", LONG_SECONDS),
            token=options.get("token", TOKEN),
            say=self._say,
            timing=timing,
        )
        gate = Gate(
            timeout_seconds=options.get("gate", 0),
            most_losses=options.get("most_losses", 2),
            waiting=self._waiting,
            timing=timing,
        )

        def run() -> None:
            meeting = options.get("meeting", "m")
            with own:
                meeting = asyncio.run(released(given)) if meeting is None else meeting
                self.has_met.set()
                again = gate if gate.timeout_seconds else None
                seen = options.get("seen") or Generations()
                serve(own, Group(given, meeting=meeting, seen=seen, gate=again))

        self.serving = threading.Thread(target=run, daemon=True)
        self.serving.start()
        self._pool = ThreadPoolExecutor(1)

    def _say(self, level: str, line: str) -> None:
        self.lines.append(f"{level} {line}")

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[Say]:
        self.is_waiting = True
        try:
            yield self._say
        finally:
            self.is_waiting = False

    def ask(self) -> Future[Neighbours]:
        """Ask for the neighbours."""
        return self._pool.submit(join, {"CLUSTER_GROUP_FD": str(self.commands.fileno())})

    def wait_for(self, *texts: str) -> str:
        """Return the first line that has all of the texts, as soon as it is said."""
        until = time.monotonic() + LONG_SECONDS
        while time.monotonic() < until:
            for line in list(self.lines):
                if all(text in line for text in texts):
                    return line
            time.sleep(0.01)
        raise AssertionError(f"nobody said {texts} but {self.lines}")

    def end(self) -> None:
        """End, as a command does; what answers has to end, too."""
        with contextlib.suppress(OSError):
            self.commands.shutdown(socket.SHUT_RDWR)
        self.serving.join(LONG_SECONDS)
        assert not self.serving.is_alive(), self.lines
        self._pool.shutdown()
        self.commands.close()


@pytest.fixture
def worker() -> Iterator[Callable[..., Worker]]:
    """Return a function that starts what answers one worker's command, until the test ends."""
    made: list[Worker] = []

    def start(cluster, rank: int, **options: object) -> Worker:
        made.append(Worker(cluster, rank, **options))
        return made[-1]

    yield start
    for one in made:
        one.end()


@pytest.fixture
def rings() -> Iterator[Callable[..., list[Neighbours]]]:
    """Return a function that waits for what was asked, and closes it when the test ends."""
    made: list[Neighbours] = []

    def wait(asked: list[Future[Neighbours]]) -> list[Neighbours]:
        found = [one.result(LONG_SECONDS) for one in asked]
        made.extend(found)
        return found

    yield wait
    for one in made:
        one.left.close()
        one.right.close()
