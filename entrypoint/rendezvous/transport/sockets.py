"""The machine's network: TCP, name look-ups, the worker's own port."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.look_ups import Endpoint
from entrypoint.cluster.spec import ClusterSpec, Member
from entrypoint.log import Say
from entrypoint.rendezvous.port import listening_host, open_port
from entrypoint.rendezvous.transport.names import Names
from entrypoint.rendezvous.transport.reasons import PeerError, words
from entrypoint.rendezvous.transport.timing import Timing

CHUNK = 4096
NEWLINE = b"\n"
BUFFER_BYTES = 4 * 2**20
"""The data in transit on a connection of a ring: enough for 10 Gbit/s over 3 ms, or 100 Mbit/s over
300 ms."""
NO_SUCH_PROTOCOL = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""The errors for an IPv6 address on a machine without IPv6. A name may have one as well (localhost:
::1)."""


class SocketWire:
    """A connected socket."""

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(0)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self.ip = _ip(connected)

    async def read(self) -> bytes:
        """Return the available bytes, up to the end of a line."""
        chunk = await self._loop.sock_recv(self._socket, 1)
        return chunk + self._rest_of_line() if chunk and chunk != NEWLINE else chunk

    def _rest_of_line(self) -> bytes:
        try:
            there = self._socket.recv(CHUNK, socket.MSG_PEEK)
        except BlockingIOError:
            return b""
        line, newline, _ = there.partition(NEWLINE)
        length = len(line + newline)
        return self._socket.recv(length) if length else b""

    async def write(self, data: bytes) -> None:
        """Send all bytes."""
        await self._loop.sock_sendall(self._socket, data)

    def hang_up(self, *, at_once: bool) -> None:
        """End both directions, or only this side's."""
        with contextlib.suppress(OSError):  # the other side was faster
            self._socket.shutdown(socket.SHUT_RDWR if at_once else socket.SHUT_WR)

    def forget(self) -> None:
        """Make the close reset the connection."""
        linger = struct.pack("ii", 1, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def hand_over(self) -> socket.socket:
        """Hand the socket over."""
        return socket.socket(fileno=self._socket.detach())


class SocketPort:
    """A listening socket."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self._loop = asyncio.get_running_loop()

    async def accept(self) -> SocketWire:
        """Wait for a connection. In Python 3.11, a cancelled `sock_accept` may lose one."""
        while True:
            with contextlib.suppress(BlockingIOError):
                return SocketWire(self._socket.accept()[0])
            await self._somebody()

    async def _somebody(self) -> None:
        there = asyncio.Event()
        self._loop.add_reader(self._socket, there.set)
        try:
            await there.wait()
        finally:
            self._loop.remove_reader(self._socket)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class SocketConnector:
    """Dials over TCP."""

    def __init__(self, timing: Timing, *, asks_again: bool) -> None:
        again_seconds = timing.ask_again_seconds if asks_again else None
        self._names, self._timing = Names(timing.look_up_seconds, again_seconds), timing

    async def connect(self, address: Address) -> SocketWire:
        """Return a connection to the first of the name's addresses that answers."""
        return SocketWire(await connect(self._names, address, self._timing, enlarge_buffers))

    def forget(self, address: Address) -> None:
        """Look the name up again next time."""
        self._names.forget(address)


class SocketNetwork:
    """The machine's network."""

    async def open_port(
        self, spec: ClusterSpec, me: Member, seconds: float, say: Say
    ) -> SocketPort:
        """Listen on the own port."""
        listening = await open_port(listening_host(spec, me), me, seconds, say)
        listening.settimeout(0)
        enlarge_buffers(listening)
        return SocketPort(listening)

    def connector(self, timing: Timing, *, asks_again: bool) -> SocketConnector:
        """Return a dialer."""
        return SocketConnector(timing, asks_again=asks_again)


def enlarge_buffers(unconnected: socket.socket) -> None:
    """Set large buffers for paths with a long delay, if this machine allows them.

    Linux stops adapting a buffer whose size is set, and silently limits it to net.core.rmem_max or
    wmem_max. By default these are smaller than the limit of Linux's own adaptation. So a size that
    is not fully allowed is not set.
    """
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            allowed = probe.getsockopt(socket.SOL_SOCKET, option)
        if allowed >= BUFFER_BYTES:
            unconnected.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)


def _ip(connected: socket.socket) -> str:
    """Return the other side's IP address; "?" if the other side has gone already."""
    try:
        name = connected.getpeername()
    except OSError:
        return "?"
    return str(name[0]).removeprefix("::ffff:")


async def connect(
    names: Names,
    address: Address,
    timing: Timing,
    prepare: Callable[[socket.socket], None] = lambda _: None,
) -> socket.socket:
    """Return a socket connected to the first of the name's addresses that answers.

    `prepare` gets each socket before it connects. Raises PeerError; reasons of addresses in a
    protocol that this machine lacks are reported only if there is no other.
    """
    reason = ""
    for endpoint in await names.look_up(address):
        try:
            return await _connect_to(endpoint, timing.connect_seconds, prepare)
        except OSError as error:  # includes TimeoutError
            if not reason or error.errno not in NO_SUCH_PROTOCOL:
                reason = words(error)
    raise PeerError(reason)


async def _connect_to(
    endpoint: Endpoint, seconds: float, prepare: Callable[[socket.socket], None]
) -> socket.socket:
    family, address = endpoint
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        prepare(connecting)
        connecting.settimeout(0)
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().sock_connect(connecting, address)
        refuse_itself(connecting)
    except BaseException:
        connecting.close()
        raise
    return connecting


def refuse_itself(connected: socket.socket) -> None:
    """Raise OSError for a socket that is connected with itself.

    On one machine, a dialer's own port may be the very port that it dials. If nothing listens
    there, TCP connects the two (simultaneous open, RFC 9293, section 3.5).
    """
    if connected.getsockname() == connected.getpeername():
        raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
