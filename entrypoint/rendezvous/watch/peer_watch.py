"""After the gate: watches whether the peers' commands join TensorFlow's cluster.

TensorFlow waits up to an hour for its peers, and ignores signals. So a separate process watches
them, as soon as TensorFlow's server has opened this worker's port. TensorFlow would wait in vain
for a peer that never opens its own port, that is at the gate again because its command has ended,
or that does not join the cluster. The chief watches all others, and they watch the chief, as at the
gate: the cost grows with the number of workers. If another program uses this worker's port, nothing
is watched: only the command knows which workers it waits for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import ClusterSpec, Member, Task
from entrypoint.errors import listed
from entrypoint.rendezvous.outcome import with_reasons
from entrypoint.rendezvous.transport import reasons, signing
from entrypoint.rendezvous.transport.names import Names
from entrypoint.rendezvous.transport.reasons import BlindError, PeerError, words
from entrypoint.rendezvous.transport.sockets import connect
from entrypoint.rendezvous.transport.timing import Timing
from entrypoint.rendezvous.watch import tensorflow_server

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTENING = "0A"
"""TCP_LISTEN in these tables (include/net/tcp_states.h)."""
POLL_SECONDS = 0.5
LOOK_SECONDS = 2.0
FIRST_BYTES_SECONDS = 1.0
"""A gate sends a greeting at once, and TensorFlow's server sends its settings. A silent port is not
a gate."""
AT_ONCE = 64
SILENT_SECONDS = 30.0
"""A server at this worker's port that is silent for this long is not TensorFlow's."""
LOOPBACK = "127.0.0.1"
"""TensorFlow's server listens on all addresses of its machine."""
SETTLED_SECONDS = 60.0
"""The watch continues for this long after all peers are there, while TensorFlow connects."""


NOT_JOINED = "its port is open, but it has not joined TensorFlow's cluster"


class NotKnownError(Exception):
    """No server could be asked whether the peers have joined. The message gives the reason."""


def watch_peers(  # noqa: PLR0913 -- all parts of a watch
    spec: ClusterSpec,
    task: Task,
    limit_seconds: float,
    *,
    is_ring: Callable[[], bool],
    trains: Callable[[], bool],
    note: str = "",
) -> str:
    """Watch the peers; return why the command waits in vain, or "" if it does not.

    `limit_seconds` is the time for a peer to open its port and to join the cluster; 0 for no limit.
    `is_ring` tells whether the command has asked for its neighbours: then the entrypoint opens this
    worker's port. `trains` tells whether the command has made progress, so that it waits for
    nobody. `note` is a clause about a possible obstacle between TensorFlow and its peers.

    Raises NotKnownError if the result cannot be determined.
    """
    own = next(member.address for member in spec.members if member.task == task)
    while not is_listening(own.port):
        if is_ring():  # a port of the ring may open and close between two looks
            return ""
        time.sleep(POLL_SECONDS)
    is_chief = task == spec.chief.task
    others = [member for member in spec.members if member.task != task]

    async def watch() -> str:
        """Watch the peers if TensorFlow waits for them."""
        if not await _serves_tensorflow(own.port, is_ring):
            return ""
        peer_watch = PeerWatch(
            others if is_chief else [spec.chief],
            cluster=spec.members,
            leader=Address(LOOPBACK, own.port) if is_chief else spec.chief.address,
            is_ring=is_ring,
            trains=trains,
        )
        return await peer_watch.watch(limit_seconds)

    reason = asyncio.run(watch())
    return f"{reason} ({note})" if reason and note else reason


async def _serves_tensorflow(port: int, is_ring: Callable[[], bool]) -> bool:
    """Whether TensorFlow's server listens on this worker's port; a busy one may answer late."""
    names, deadline = Names(0), time.monotonic() + SILENT_SECONDS
    while not is_ring() and time.monotonic() < deadline:
        try:
            connected = await connect(names, Address(LOOPBACK, port), Timing())
            return await tensorflow_server.is_tensorflow(connected)
        except (PeerError, OSError):
            await asyncio.sleep(LOOK_SECONDS)
    return False


def is_listening(port: int) -> bool:
    """Whether a process of this machine, or of this container, listens on the port."""
    wanted = f":{port:04X}"
    rows = [line.split() for table in TABLES for line in _lines(table)]
    return any(row[1].endswith(wanted) and row[3] == LISTENING for row in rows)


def _lines(table: str) -> Sequence[str]:
    """Return a table without its header; nothing if the protocol is missing."""
    try:
        return Path(table).read_text().splitlines()[1:]
    except OSError:
        return ()


class PeerWatch:
    """Looks at some peers at regular intervals."""

    def __init__(
        self,
        peers: Sequence[Member],
        *,
        cluster: Sequence[Member] = (),
        leader: Address | None = None,
        is_ring: Callable[[], bool] = lambda: False,
        trains: Callable[[], bool] = lambda: False,
    ) -> None:
        self._timing = Timing()
        self._names = Names(self._timing.look_up_seconds)
        self._missing = dict.fromkeys(peers, reasons.REFUSED)
        self._not_joined: Sequence[Member] = cluster if leader else ()
        self._why, self._has_answered = NOT_JOINED, False
        self._peers, self._leader = peers, leader
        self._is_ring, self._trains = is_ring, trains
        self._places = asyncio.Semaphore(AT_ONCE)

    async def watch(self, limit_seconds: float) -> str:
        """Watch until there is a failure, or none for a while; return the failure or "".

        Raises NotKnownError if all ports are open, but no server could be asked who has joined.
        """
        started = time.monotonic()
        settled = 0.0
        while settled < SETTLED_SECONDS and not self._is_ring():
            fallen = [member for member in await self._look() if member]
            if fallen:
                return _at_the_gate(fallen)
            waited = time.monotonic() - started
            if not self._missing and not self._not_joined:
                settled += LOOK_SECONDS
            elif limit_seconds and waited > limit_seconds:
                if self._trains():
                    return ""
                if not (self._missing or self._has_answered):
                    raise NotKnownError(self._why)
                named = with_reasons(self._absent())
                return f"TensorFlow waited {waited:.0f} s (STARTUP_TIMEOUT) for its peers: {named}"
            await asyncio.sleep(LOOK_SECONDS)
        return ""

    def _absent(self) -> Sequence[tuple[Member, str]]:
        closed = list(self._missing.items())
        return closed or [(member, self._why) for member in self._not_joined]

    async def _look(self) -> Iterable[Member | None]:
        """Look at every peer once; return those that are at the gate."""
        found = await asyncio.gather(*(self._look_at(member) for member in self._peers))
        if not self._missing and self._not_joined and self._leader:
            await self._ask(self._leader)
        return found

    async def _ask(self, leader: Address) -> None:
        tasks = [member.task for member in self._not_joined]
        try:
            connected = await connect(self._names, leader, self._timing)
            absent = await tensorflow_server.not_joined(connected, tasks)
        except BlindError:
            raise
        except (PeerError, OSError) as error:
            if not self._has_answered:  # a failure adds nothing to an earlier answer
                self._why = (
                    f"TensorFlow's server at {leader} cannot be asked whether they have "
                    f"joined: {_why(error)}"
                )
        else:
            self._has_answered = True
            self._not_joined = [one for one in self._not_joined if one.task in absent]
            self._why = NOT_JOINED

    async def _look_at(self, member: Member) -> Member | None:
        """Note whether a peer's port is open; return the peer if a gate answers there."""
        async with self._places:
            try:
                first = await self._first_bytes(member)
            except BlindError:
                raise  # without resources here, nothing is known about the peer
            except (PeerError, OSError) as error:
                if member in self._missing:
                    self._missing[member] = _why(error)
                return None
        self._missing.pop(member, None)
        return member if first.startswith(signing.GREETING) else None

    async def _first_bytes(self, member: Member) -> bytes:
        """Return the first bytes that the peer's port sends, if any. Raises PeerError, OSError."""
        connected = await connect(self._names, member.address, self._timing)
        try:
            async with asyncio.timeout(FIRST_BYTES_SECONDS):
                first = await asyncio.get_running_loop().sock_recv(connected, 64)
        except TimeoutError:
            return b""
        finally:
            connected.close()
        if not first:
            raise PeerError(reasons.CLOSED_AT_ONCE)
        return first


def _why(error: PeerError | OSError) -> str:
    return words(error) if isinstance(error, OSError) else str(error)


def _at_the_gate(fallen: Sequence[Member]) -> str:
    names = listed([str(member.task) for member in fallen])
    if len(fallen) == 1:
        return f"{names} is at the gate again: its command has ended"
    return f"{names} are at the gate again: their commands have ended"
