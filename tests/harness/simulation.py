"""A network in memory with a simulated clock: many workers in one event loop, without waiting.

When no task can run, the clock jumps to the next moment at which a task can run. So a test of
minutes takes milliseconds, and every run is the same.
"""

from __future__ import annotations

import asyncio
import errno
import selectors
from collections.abc import Coroutine
from typing import Any

from entrypoint.cluster.addresses import Address
from entrypoint.rendezvous.outcome import PortTakenError
from entrypoint.rendezvous.transport import reasons
from entrypoint.rendezvous.transport.reasons import PeerError

LATENCY_SECONDS = 0.001
DAY_SECONDS = 86_400.0
TURN_SECONDS = 1e-9
"""The duration of a turn of the loop. Without it, a wait that a float cannot resolve never ends."""


class _Selector(selectors.SelectSelector):
    """A selector that moves the clock instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self.now += TURN_SECONDS
        if not ready and timeout:
            self.now += timeout
            if self.now > DAY_SECONDS:
                raise RuntimeError("a day has gone by")
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop with a simulated clock."""

    def __init__(self) -> None:
        self._own = _Selector()
        super().__init__(self._own)

    def time(self) -> float:
        return self._own.now


def simulate(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a simulated loop."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(coroutine)


class MemoryWire:
    """One end of a connection."""

    def __init__(self, host: str, other_host: str, space: Space, *, ip: str = "") -> None:
        self.host, self.other_host, self._space = host, other_host, space
        self.ip = ip or other_host
        self.other: MemoryWire = self
        self._there = bytearray()
        self.has_ended = self._is_given_away = False
        self._news = asyncio.Event()

    async def read(self) -> bytes:
        while True:
            await self._space.thawed(self.host)
            if self._there:
                line, newline, _ = bytes(self._there).partition(b"\n")
                del self._there[: len(line + newline)]
                return line + newline
            if self.has_ended:
                return b""
            self._news.clear()
            await self._news.wait()

    async def write(self, data: bytes) -> None:
        await self._space.thawed(self.host)
        if self.other.has_ended or self._space.is_cut(self.host, self.other_host):
            raise OSError(errno.EPIPE, "")
        await asyncio.sleep(LATENCY_SECONDS)
        self.other._there += data  # noqa: SLF001
        self.other._news.set()  # noqa: SLF001

    def hang_up(self, *, at_once: bool) -> None:
        if not self._is_given_away and not self._space.is_frozen(self.host):
            self.end(at_once=at_once)

    def forget(self) -> None:
        pass

    def close(self) -> None:
        """Close this end, unless it was passed on. Then the new owner closes it."""
        self.hang_up(at_once=True)

    def end(self, *, at_once: bool = True) -> None:
        """End the connection."""
        for one in (self.other, self) if at_once else (self.other,):
            one.has_ended = True
            one._news.set()  # noqa: SLF001

    def hand_over(self) -> Any:
        self._is_given_away = True
        return self


class MemoryPort:
    """An open port."""

    def __init__(self, space: Space, address: Address) -> None:
        self._space, self._address = space, address
        self.waiting: asyncio.Queue[MemoryWire] = asyncio.Queue()
        space.ports[address] = self

    async def accept(self) -> MemoryWire:
        await self._space.thawed(self._address.host)
        return await self.waiting.get()

    def close(self) -> None:
        if self._space.ports.get(self._address) is self:
            del self._space.ports[self._address]


class Space:
    """All hosts, and the network between them."""

    def __init__(self) -> None:
        self.ports: dict[Address, MemoryPort] = {}
        self.cut: set[tuple[str, str]] = set()
        """The pairs of hosts between which nothing arrives: sender, receiver."""
        self.moved: dict[tuple[str, Address], Address] = {}
        """The address that a host reaches instead of another, as with a wrong DNS entry."""
        self.forwards: dict[Address, Address] = {}
        """Address -> the address to which its connections are forwarded."""
        self._frozen: dict[str, asyncio.Event] = {}

    def freeze(self, host: str) -> None:
        self._frozen[host] = asyncio.Event()

    def thaw(self, host: str) -> None:
        self._frozen.pop(host).set()

    def is_frozen(self, host: str) -> bool:
        return host in self._frozen

    async def thawed(self, host: str) -> None:
        if frozen := self._frozen.get(host):
            await frozen.wait()

    def is_cut(self, one: str, other: str) -> bool:
        return (one, other) in self.cut


class MemoryNetwork:
    """The network as one host sees it."""

    def __init__(self, space: Space, host: str, ip: str = "") -> None:
        """Show this IP address to other hosts. The default is the host's name."""
        self.space, self.host, self.ip = space, host, ip or host

    async def open_port(self, spec: object, me: Any, seconds: float, say: Any) -> MemoryPort:  # noqa: ARG002
        until = asyncio.get_running_loop().time() + seconds
        while me.address in self.space.ports:
            if asyncio.get_running_loop().time() >= until:
                raise PortTakenError(f"port {me.address.port} is taken")
            await asyncio.sleep(0.1)
        return MemoryPort(self.space, me.address)

    def connector(self, timing: Any, *, asks_again: bool) -> MemoryNetwork:  # noqa: ARG002
        return self

    async def connect(self, address: Address) -> MemoryWire:
        space = self.space
        await space.thawed(self.host)
        found = space.moved.get((self.host, address), space.forwards.get(address, address))
        await asyncio.sleep(LATENCY_SECONDS)
        if space.is_cut(self.host, found.host):
            await asyncio.sleep(3.0)
            raise PeerError(reasons.NO_ANSWER)
        if found not in space.ports:
            raise PeerError(reasons.REFUSED)
        here, there = (
            MemoryWire(self.host, found.host, space),
            MemoryWire(found.host, self.host, space, ip=self.ip),
        )
        here.other, there.other = there, here
        space.ports[found].waiting.put_nowait(there)
        return here

    def forget(self, address: Address) -> None:
        pass
