"""The network of a meeting: sockets in `sockets.py`, queues in memory in tests.

The time is the event loop's (`loop.time`, `asyncio.sleep`): tests use a loop with a simulated
clock.
"""

from __future__ import annotations

import socket
from typing import Protocol

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import ClusterSpec, Member
from entrypoint.log import Say
from entrypoint.rendezvous.transport.timing import Timing


class Wire(Protocol):
    """Both directions of one connection, in bytes. Failures raise OSError."""

    ip: str
    """The other side's IP address; "?" if the other side has gone already."""

    async def read(self) -> bytes:
        """Return the available bytes, up to the end of a line; b"" if the other side has ended.

        Bytes after the line are not read: they may be for the next owner of the wire.
        """

    async def write(self, data: bytes) -> None:
        """Send all bytes."""

    def hang_up(self, *, at_once: bool) -> None:
        """End both directions; with `at_once=False` the other side may finish sending."""

    def forget(self) -> None:
        """Leave no TCP state behind after the close. It would occupy the port."""

    def close(self) -> None:
        """Close this end, unless it was handed over."""

    def hand_over(self) -> socket.socket:
        """Hand this end over. Data for its next reader is still unread."""


class Port(Protocol):
    """This worker's own port, open."""

    async def accept(self) -> Wire:
        """Wait for a connection; raise OSError if none can be accepted now."""

    def close(self) -> None:
        """Close the port."""


class Connector(Protocol):
    """Connects to other workers."""

    async def connect(self, address: Address) -> Wire:
        """Return a connection; raise PeerError."""

    def forget(self, address: Address) -> None:
        """Look the name up again next time."""


class Network(Protocol):
    """The network on which workers meet."""

    async def open_port(self, spec: ClusterSpec, me: Member, seconds: float, say: Say) -> Port:
        """Open this worker's port; retry for `seconds` while it is in use.

        Raises PortTakenError, PortClosedError.
        """

    def connector(self, timing: Timing, *, asks_again: bool) -> Connector:
        """Return a connector; `asks_again`: repeat unanswered look-ups of names."""
