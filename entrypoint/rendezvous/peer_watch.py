"""After the gate: whether the peers' commands come as far as this one's.

TensorFlow waits for its peers for up to an hour, deaf to signals. So another process looks, as soon
as the command has opened this worker's port: a peer that never opens its own, or that is at the
gate again because its command has ended, is one that TensorFlow would wait for in vain. The chief
looks at all others and these at the chief, as at the gate: the cost grows with the number of
workers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from entrypoint.cluster.spec import ClusterSpec, Member, Task
from entrypoint.errors import listed
from entrypoint.rendezvous.outcome import with_reasons
from entrypoint.rendezvous.transport import reasons, signing
from entrypoint.rendezvous.transport.dialer import connect
from entrypoint.rendezvous.transport.names import Names
from entrypoint.rendezvous.transport.reasons import BlindError, PeerError, words
from entrypoint.rendezvous.transport.timing import Timing

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTENING = "0A"
"""TCP_LISTEN in these tables (include/net/tcp_states.h)."""
POLL_SECONDS = 0.5
LOOK_SECONDS = 2.0
FIRST_BYTES_SECONDS = 1.0
"""A gate greets at once, and TensorFlow's server sends its settings; what is silent is no gate."""
AT_ONCE = 64
SETTLED_SECONDS = 60.0
"""For so long after all peers were there one may still fall back: TensorFlow connects them now."""


def watch_peers(
    spec: ClusterSpec, task: Task, limit_seconds: float, is_ring: Callable[[], bool]
) -> str:
    """Watch the peers; return why the command waits in vain, an empty text if it does not.

    `limit_seconds` is how long a peer may take to open its port, 0 for no limit. `is_ring` tells
    whether it is not the command that opens this worker's port, but what connects its neighbours.
    """
    own = next(member.address for member in spec.members if member.task == task)
    while not is_listening(own.port):
        time.sleep(POLL_SECONDS)
    if is_ring():
        return ""
    others = [member for member in spec.members if member.task != task]
    peers = others if task == spec.chief.task else [spec.chief]
    return asyncio.run(_watch(peers, limit_seconds))


async def _watch(peers: Sequence[Member], limit_seconds: float) -> str:
    """Watch them; a loop runs now, which looking up names needs."""
    return await PeerWatch(peers).watch(limit_seconds)


def is_listening(port: int) -> bool:
    """Whether a process of this machine, or of this container, listens on the port."""
    wanted = f":{port:04X}"
    rows = [line.split() for table in TABLES for line in _lines(table)]
    return any(row[1].endswith(wanted) and row[3] == LISTENING for row in rows)


def _lines(table: str) -> Sequence[str]:
    """Return a table without its head; nothing where there is no such protocol."""
    try:
        return Path(table).read_text().splitlines()[1:]
    except OSError:
        return ()


class PeerWatch:
    """Looks at some peers again and again."""

    def __init__(self, peers: Sequence[Member]) -> None:
        self._timing = Timing()
        self._names = Names(self._timing.look_up_seconds)
        self._missing = dict.fromkeys(peers, reasons.REFUSED)
        self._peers = peers
        self._places = asyncio.Semaphore(AT_ONCE)

    async def watch(self, limit_seconds: float) -> str:
        """Look until something is wrong, or has been right for a while; return what is wrong."""
        began = time.monotonic()
        settled = 0.0
        while settled < SETTLED_SECONDS:
            fallen = [member for member in await self._look() if member]
            if fallen:
                return _at_the_gate(fallen)
            waited = time.monotonic() - began
            if not self._missing:
                settled += LOOK_SECONDS
            elif limit_seconds and waited > limit_seconds:
                named = with_reasons(list(self._missing.items()))
                return f"TensorFlow waited {waited:.0f} s (STARTUP_TIMEOUT) for its peers: {named}"
            await asyncio.sleep(LOOK_SECONDS)
        return ""

    async def _look(self) -> Iterable[Member | None]:
        """Look at every peer once; return those that are at the gate."""
        return await asyncio.gather(*(self._look_at(member) for member in self._peers))

    async def _look_at(self, member: Member) -> Member | None:
        """Note whether a peer's port is open; return the peer if a gate answers there."""
        async with self._places:
            try:
                first = await self._first_bytes(member)
            except BlindError:
                raise  # a watch that cannot see must not come to a verdict
            except (PeerError, OSError) as error:
                if member in self._missing:
                    reason = words(error) if isinstance(error, OSError) else str(error)
                    self._missing[member] = reason
                return None
        self._missing.pop(member, None)
        return member if first.startswith(signing.GATE.greeting) else None

    async def _first_bytes(self, member: Member) -> bytes:
        """Return what the peer's port says by itself, if anything; raise PeerError, OSError."""
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


def _at_the_gate(fallen: Sequence[Member]) -> str:
    """Return what is wrong where peers have fallen back."""
    names = listed([str(member.task) for member in fallen])
    if len(fallen) == 1:
        return f"{names} is at the gate again: its command has ended"
    return f"{names} are at the gate again: their commands have ended"
