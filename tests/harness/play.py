"""Workers that meet in memory. Each runs the same code as an entrypoint that meets its peers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import ClusterSpec, Member, Task
from entrypoint.network.link import Link
from entrypoint.rendezvous.command_rings.group import Group, Waiting
from entrypoint.rendezvous.gate import released
from entrypoint.rendezvous.generations import Generations
from entrypoint.rendezvous.outcome import Fewer, Meeting, Ring
from entrypoint.rendezvous.terms import Terms
from entrypoint.rendezvous.transport.timing import Timing
from harness.gates import facts_of, tasks_of
from harness.simulation import MemoryNetwork, Space

LONG_SECONDS = 3600.0
TOKEN = "a secret that they share"


def seen(newest: int, size: int) -> Generations:
    """Return the generations that a worker remembers after a ring of `size` workers."""
    found = Generations()
    found.note(newest, size)
    return found


class Player:
    """One worker. Its command starts (`start`) and requests its neighbours (`ask`)."""

    def __init__(self, play: Play, place: int, **options: Any) -> None:
        self.play, self.place, self.options = play, place, options
        self.lines: list[str] = []
        self.news: list[list[str]] = []
        """The names of the waiting workers, each time that the command was told of them."""
        self.prolonged: list[str] = []
        self.links: Sequence[Link] | None = None
        """The measured links of its first ring."""
        self.is_waiting = False
        self.seen = options.pop("seen", None) or Generations()
        self.group: Group | None = None
        self.meeting: Meeting | None = None
        self.ring: Ring | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._receiving: asyncio.Task[Any] | None = None
        self._asking: asyncio.Task[Any] | None = None

    @property
    def task(self) -> Task:
        return self.play.spec.members[self.place].task

    @property
    def host(self) -> str:
        found: str = self.options.get("host", self.play.spec.members[self.place].address.host)
        return found

    def start(self) -> asyncio.Task[Meeting]:
        """Pass the gate, then run the command."""
        return self._do(self._start())

    async def _start(self) -> Meeting:
        terms = replace(self._terms(), generation=self.seen.newest, ring_size=self.seen.size)
        self.run(await released(terms))
        assert self.meeting is not None
        return self.meeting

    def run(self, meeting: Meeting | None = None) -> None:
        """Run the command after this meeting."""
        self.meeting = meeting or Meeting("m")
        has_gate = self.options.get("gate", 300.0) > 0
        self.group = Group(
            self._terms(Timing.of_commands()),
            meeting=self.meeting,
            seen=self.seen,
            waiting=self._waiting if has_gate else None,
            clock=asyncio.get_running_loop().time,
        )

    def ask(self) -> asyncio.Task[Ring]:
        """Leave an existing ring, and request the neighbours."""
        self.leave()
        if self._asking:
            self._asking.cancel()
        self._asking = self._do(self._ask())
        return self._asking

    async def _ask(self) -> Ring:
        assert self.group is not None
        if self._receiving:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)
        self.ring = await self.group.ring()
        self._receiving = self._do(self.group.receive_latecomers(self._note))
        return self.ring

    def leave(self) -> None:
        """Close the ring's connections, as a command does if the ring breaks."""
        ring, self.ring = self.ring, None
        for one in (ring.left, ring.right) if ring else ():
            one.end()  # type: ignore[attr-defined]

    def sees_it_break(self) -> bool:
        """Whether the command notices that its ring is broken."""
        ring: Any = self.ring
        return ring is None or ring.left.has_ended or ring.right.has_ended

    async def kill(self) -> None:
        """End at once, as a killed container does."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.leave()

    async def hear(self, *texts: str) -> str:
        """Wait for a line that contains all of the texts; return it."""
        while True:
            for line in self.lines:
                if all(text in line for text in texts):
                    return line
            await asyncio.sleep(0.05)

    async def told(self, *names: str) -> None:
        """Wait until the command was told that these workers wait to join."""
        await until(lambda: bool(self.news) and self.news[-1] == list(names))

    def _do(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(lambda one: one.cancelled() or one.exception())
        return task

    @property
    def _fewer(self) -> Fewer | None:
        least = self.options.get("least")
        return Fewer(least, self.options.get("after_seconds", 0.0)) if least else None

    def _terms(self, timing: Timing | None = None) -> Terms:
        options = self.options
        return Terms(
            spec=options.get("spec", self.play.spec),
            task=options.get("task", self.task),
            facts=replace(self.play.facts, **options.get("facts", {})),
            timeout_seconds=options.get("gate", 300.0) or LONG_SECONDS,
            start_seconds=options.get("start_seconds", 0.0),
            token=options.get("token", TOKEN),
            say=self._say,
            timing=timing or Timing(),
            network=MemoryNetwork(self.play.space, self.host),
            fewer=self._fewer,
            most_losses=options.get("most_losses", 9),
            note_network=self._note_network,
        )

    def _note_network(self, links: Sequence[Link]) -> None:
        self.links = links

    def _say(self, level: str, line: str) -> None:
        self.lines.append(f"{level} {line}")

    def _note(self, tasks: Sequence[Task]) -> None:
        self.news.append([str(task) for task in tasks])

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[Waiting]:
        self.is_waiting = True
        try:
            yield Waiting(self._say, self.prolonged.append)
        finally:
            self.is_waiting = False


class Play:
    """A cluster in memory."""

    def __init__(self, count: int, *, with_chief: bool = False, **options: Any) -> None:
        self.space, self.options = Space(), options
        tasks = tasks_of(count, with_chief=with_chief)
        self.spec = ClusterSpec(
            tuple(
                Member(task, Address(f"10.0.{rank // 250}.{rank % 250 + 1}", 2222))
                for rank, task in enumerate(tasks)
            )
        )
        self.facts = facts_of(self.spec)
        self.players = [self.player(place) for place in range(count)]

    def player(self, place: int, **options: Any) -> Player:
        """Return a worker outside of the list of players, such as a duplicate or an impostor."""
        return Player(self, place, **{**self.options, **options})

    def replace(self, place: int, **options: Any) -> Player:
        """Replace a worker's process by a new one."""
        self.players[place] = self.player(place, **options)
        return self.players[place]

    def address(self, place: int) -> Address:
        return self.spec.members[place].address

    async def all_run(self) -> None:
        """Let all workers pass the gate, and run their commands."""
        await asyncio.gather(*(one.start() for one in self.players))

    async def ring(self, *places: int) -> list[Ring]:
        """Let these workers, or all, request their neighbours; return their rings."""
        chosen = places or range(len(self.players))
        return await asyncio.gather(*(self.players[place].ask() for place in chosen))

    async def begin(self) -> list[Ring]:
        """Start all workers, and let them form a ring."""
        await self.all_run()
        return await self.ring()

    async def lose(self, *places: int) -> None:
        """Kill these workers; the ring breaks for all."""
        for place in places:
            await self.players[place].kill()
        for one in self.players:
            one.leave()


def check_circle(rings: Sequence[Ring]) -> None:
    """Fail unless the ranks agree, and each is connected to the next."""
    assert len({ring.generation for ring in rings}) == 1
    assert [ring.rank for ring in rings] == list(range(len(rings)))
    assert {ring.size for ring in rings} == {len(rings)}
    for ring, following in zip(rings, [*rings[1:], rings[0]], strict=True):
        wire: Any = ring.right
        assert wire.other is following.left
    assert len({ring.positions for ring in rings}) == 1


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds, by the simulated clock."""
    while not holds():  # noqa: ASYNC110 -- nothing signals it, and it costs no time
        await asyncio.sleep(0.05)
