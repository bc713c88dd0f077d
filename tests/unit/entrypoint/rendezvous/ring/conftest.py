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
from entrypoint.errors import ConfigurationError
from entrypoint.rendezvous.attempt import Given
from entrypoint.rendezvous.gate import released
from entrypoint.rendezvous.meeting import Fewer, Meeting
from entrypoint.rendezvous.outcome import ContradictionError
from entrypoint.rendezvous.ring.regroup import Gate, Group, Waiting
from entrypoint.rendezvous.ring.serve import serve
from entrypoint.rendezvous.transport.timing import Timing
from entrypoint.supervision.peers.shared import Generations
from harness.timing import QUICK as ONE_MACHINE

QUICK = replace(ONE_MACHINE, ping_seconds=0.1, alive_seconds=3.0, release_seconds=2.0)
PATIENT = Timing(
    first_line_seconds=QUICK.first_line_seconds,
    line_seconds=QUICK.line_seconds,
    redial_seconds=QUICK.redial_seconds,
    probe_seconds=QUICK.probe_seconds,
    ping_seconds=QUICK.ping_seconds,
    collect_seconds=QUICK.collect_seconds,
    passing_seconds=QUICK.passing_seconds,
)
"""Where nobody goes silent but this machine."""
LONG_SECONDS = 60.0
"""More than anything here takes on a machine that others use too."""
TOKEN = "a secret that they share"


class Worker:
    """A command's end of the socket, and what answers at the other end, in a thread.

    `gate` are the seconds that it may wait at the gate before another ring; 0: there is no gate.
    With them, only the machine is slow (PATIENT). `spec` is its own view of the addresses; it dials
    in vain every `redial_seconds`; after `soon` seconds without a ring those who met meet again.
    With `meeting=None` it passes the gate before all else, as a command's start does.
    """

    def __init__(self, cluster, rank: int, **options: object) -> None:
        timing = PATIENT if options.get("gate") else QUICK
        redial_seconds = options.get("redial_seconds", timing.redial_seconds)
        timing = replace(timing, redial_seconds=redial_seconds)
        self.lines: list[str] = []
        self.prolonged: list[str] = []
        """What it was told whenever its wait might last as long again."""
        self.is_waiting = False
        self.error: Exception | None = None
        """With which the gate before the command ended."""
        self.has_met, self._has_ended = threading.Event(), threading.Event()
        own, self.commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = Given(
            spec=options.get("spec", cluster.spec),
            task=cluster.member(options.get("task", rank)).task,
            facts=replace(cluster.facts, **options.get("facts", {})),
            timeout_seconds=options.get("timeout_seconds", LONG_SECONDS),
            token=options.get("token", TOKEN),
            say=self._say,
            timing=timing,
        )
        least = options.get("least")
        fewer = Fewer(least, options.get("after_seconds", 0.0)) if least else None
        gate = Gate(
            timeout_seconds=options.get("gate", 0),
            most_losses=options.get("most_losses", 2),
            waiting=self._waiting,
            timing=timing,
            fewer=fewer,
        )
        soon = options.get("soon", timing.silent_seconds)
        given = replace(given, timing=replace(timing, silent_seconds=soon))

        def run() -> None:
            text = options.get("meeting", "m")
            with own:
                names = {"asks", "generation", "ring_size"} & options.keys()
                own_options = {name: options[name] for name in names}
                starts = replace(given, timing=PATIENT, fewer=fewer, **own_options)
                try:
                    meeting = asyncio.run(self._meet(starts)) if text is None else Meeting(text)
                except ConfigurationError as error:
                    self.error = error
                    return
                if not meeting:
                    return
                self.has_met.set()
                again = gate if gate.timeout_seconds else None
                seen = options.get("seen") or Generations()
                serve(own, Group(given, meeting=meeting, seen=seen, gate=again))

        self.serving = threading.Thread(target=run, daemon=True)
        self.serving.start()
        self._pool = ThreadPoolExecutor(1)

    async def _meet(self, given: Given) -> Meeting | None:
        """Pass the gate; None if this worker ends before, as one that is told to stop does."""
        passing = asyncio.create_task(released(given))
        while not (passing.done() or self._has_ended.is_set()):
            await asyncio.wait({passing}, timeout=0.05)
        if passing.done():
            return await passing
        passing.cancel()
        await asyncio.gather(passing, return_exceptions=True)
        return None

    def _say(self, level: str, line: str) -> None:
        self.lines.append(f"{level} {line}")

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[Waiting]:
        self.is_waiting = True
        try:
            yield Waiting(self._say, self.prolonged.append)
        finally:
            self.is_waiting = False

    def ask(self) -> Future[Neighbours]:
        """Ask for the neighbours."""
        return self._pool.submit(join, {"CLUSTER_GROUP_FD": str(self.commands.fileno())})

    def failure(self) -> str:
        """Return with which contradiction the gate before the command ends."""
        self.serving.join(LONG_SECONDS)
        assert not self.serving.is_alive(), self.lines
        assert isinstance(self.error, ContradictionError), self.lines
        return str(self.error)

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
        self._has_ended.set()
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
