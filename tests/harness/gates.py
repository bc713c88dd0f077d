"""Gates in memory, which a test drives from outside. All waits use simulated time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from entrypoint.cluster.addresses import Address, parse_address
from entrypoint.cluster.spec import CHIEF, WORKER, ClusterSpec, Member, Task
from entrypoint.rendezvous.facts import Facts, host_list
from entrypoint.rendezvous.gate import released
from entrypoint.rendezvous.terms import Terms
from entrypoint.rendezvous.transport.timing import Timing
from harness.simulation import MemoryNetwork, SimulatedLoop, Space
from harness.timing import QUICK

LONG_SECONDS = 20.0
LOOPBACK = "127.0.0.1"
"""The address from which all workers dial, as on one machine."""


class World:
    """An event loop, a network, and unique addresses."""

    def __init__(self) -> None:
        self.loop, self.space = SimulatedLoop(), Space()
        self.ports = itertools.count(20_001)
        self.gates: list[GateInMemory] = []

    def run_until(self, holds: Callable[[], bool], what: str) -> None:
        """Let simulated time pass until a condition holds."""

        async def wait() -> None:
            async with asyncio.timeout(10 * LONG_SECONDS):
                while not holds():  # noqa: ASYNC110 -- nothing signals it, and it costs no time
                    await asyncio.sleep(0.01)

        try:
            self.loop.run_until_complete(wait())
        except TimeoutError:
            raise AssertionError(f"never: {what}; {[one.lines for one in self.gates]}") from None

    def close(self) -> None:
        """End everything that still runs."""
        for one in self.gates:
            one.kill()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


class GateInMemory:
    """One worker at its gate."""

    def __init__(self, world: World, terms: Terms, *, expects_all_closed: bool = True) -> None:
        self._world, self._terms, self._expects_all_closed = world, terms, expects_all_closed
        self.lines: list[str] = []
        self.error: Exception | None = None
        self.seconds = 0.0
        host = terms.me.address.host
        self._terms = replace(
            terms,
            say=lambda level, line: self.lines.append(f"{level} {line}"),
            network=MemoryNetwork(world.space, host, LOOPBACK),
        )
        self._task = world.loop.create_task(self._pass())
        world.gates.append(self)

    async def _pass(self) -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        try:
            await released(self._terms)
            members = self._terms.spec.members if self._expects_all_closed else [self._terms.me]
            # Once one worker passes the gate, all ports are closed.
            assert not [one for one in members if one.address in self._world.space.ports]
        except Exception as error:  # noqa: BLE001
            self.error = error
        self.seconds = loop.time() - begin

    @property
    def host(self) -> str:
        """The host on which it runs."""
        return self._terms.me.address.host

    def wait_for(self, *texts: str) -> str:
        """Return the first line that contains all of the texts."""

        def found() -> str:
            lines = (line for line in self.lines if all(text in line for text in texts))
            return next(lines, "")

        self._world.run_until(lambda: bool(found()), f"a line with {texts}")
        return found()

    def end(self) -> Exception | None:
        """Wait until it has ended; return its error, or None if it was released."""
        self._world.run_until(self._task.done, "the end")
        return self.error

    def freeze(self) -> None:
        """Freeze, like a stopped process."""
        self._world.space.freeze(self.host)

    def thaw(self) -> None:
        """Continue after `freeze`."""
        self._world.space.thaw(self.host)

    def kill(self) -> None:
        """End without a message, like a killed process."""
        if not self._task.done():
            self._task.cancel()
            self._world.loop.run_until_complete(asyncio.wait([self._task]))


def tasks_of(count: int, *, with_chief: bool = False) -> list[Task]:
    """Return the tasks of `count` workers, in rank order."""
    workers = [Task(WORKER, index) for index in range(count)]
    return [Task(CHIEF, 0), *workers[:-1]] if with_chief else workers


def moved(spec: ClusterSpec, **places: str) -> ClusterSpec:
    """Return a cluster spec with some addresses replaced: `worker_1="127.0.0.1:5"`."""
    return ClusterSpec(
        tuple(
            replace(member, address=parse_address(places.get(name, str(member.address)), 1))
            for member in spec.members
            for name in [str(member.task).replace("-", "_")]
        ),
    )


def facts_of(spec: ClusterSpec) -> Facts:
    """Return the facts of equal workers."""
    return Facts(
        hosts=host_list(spec),
        image="0.1.0 (3a4601d)",
        tensorflow="2.21.0",
        gpus_per_worker="",
        settings={"TRAINER_EPOCHS": "3", "TRAINER_SEED": "42"},
    )


class GatesInMemory:
    """A cluster whose gates are in memory."""

    def __init__(self, world: World, count: int, *, with_chief: bool = False) -> None:
        self.world = world
        tasks = tasks_of(count, with_chief=with_chief)
        ports = [next(world.ports) for _ in tasks]
        self.spec = ClusterSpec(
            tuple(
                Member(task, Address(f"127.0.{rank // 250}.{rank % 250 + 1}", port))
                for rank, (task, port) in enumerate(zip(tasks, ports, strict=True))
            )
        )

    @property
    def facts(self) -> Facts:
        return facts_of(self.spec)

    def member(self, rank: int) -> Member:
        return self.spec.members[rank]

    def terms(self, rank: int, facts: Facts, timing: Timing = QUICK, **options: Any) -> Terms:
        """Return the terms of a worker."""
        given = {
            "spec": self.spec,
            "task": self.member(rank).task,
            "timeout_seconds": LONG_SECONDS,
            "token": None,
        }
        return Terms(facts=facts, timing=timing, say=lambda *_: None, **{**given, **options})

    def start(self, rank: int, **options: Any) -> GateInMemory:
        """Start one worker. Pass `spec=` if its cluster spec differs from the others'."""
        expects_all_closed = options.pop("expects_all_closed", True)
        facts = options.pop("facts", self.facts)
        terms = self.terms(rank, facts, options.pop("timing", QUICK), **options)
        return GateInMemory(self.world, terms, expects_all_closed=expects_all_closed)

    def start_all(self, *ranks: int, **options: Any) -> list[GateInMemory]:
        """Start these workers, or all of them."""
        return [self.start(rank, **options) for rank in ranks or range(len(self.spec.members))]

    def moved(self, **places: str) -> ClusterSpec:
        """Return this cluster's spec with some addresses replaced; see `moved`."""
        return moved(self.spec, **places)
