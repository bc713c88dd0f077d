"""What a meeting needs of a network: sockets in `sockets.py`, queues in memory in tests.

Time is the event loop's (`loop.time`, `asyncio.sleep`): tests have a loop with a clock of its own.
"""

from __future__ import annotations

import socket
from typing import Protocol

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import ClusterSpec, Member
from entrypoint.log import Say
from entrypoint.rendezvous.transport.timing import Timing


class Wire(Protocol):
    """Both directions of one connection, in bytes. What fails raises OSError."""

    ip: str
    """The other side's IP address; "?" if it has gone already."""

    async def read(self) -> bytes:
        """Return what is there, up to the end of a line; empty once the other side has ended.

        Nothing behind the line is taken: it may be for whom the wire is handed to.
        """

    async def write(self, data: bytes) -> None:
        """Send all of it."""

    def hang_up(self, *, at_once: bool) -> None:
        """End both directions; with `at_once=False` the other side may finish what it says."""

    def forget(self) -> None:
        """Have nothing of the connection outlive its close: no state that holds on to the port."""

    def close(self) -> None:
        """Close this end, unless it was given away."""

    def hand_over(self) -> socket.socket:
        """Give this end away: what comes next is for somebody else, and still in it."""


class Port(Protocol):
    """This worker's own port, open."""

    async def accept(self) -> Wire:
        """Wait for one who dials; raise OSError where no connection can be had now."""

    def close(self) -> None:
        """Close it."""


class Connector(Protocol):
    """Connects to other workers."""

    async def connect(self, address: Address) -> Wire:
        """Return a connection; raise PeerError."""

    def forget(self, address: Address) -> None:
        """Look the name up anew next time."""


class Network(Protocol):
    """Where workers meet."""

    async def open_port(self, spec: ClusterSpec, me: Member, seconds: float, say: Say) -> Port:
        """Open this worker's port; try for so many seconds while it is taken.

        Raises PortTakenError, PortClosedError.
        """

    def connector(self, timing: Timing, *, asks_again: bool) -> Connector:
        """Return what connects to others; `asks_again` for one name that may come meanwhile."""
