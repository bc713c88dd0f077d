"""The worker's own port and its own address."""

from __future__ import annotations

import asyncio
import errno
import socket

from entrypoint.cluster.own_machine import has_address, listen, resolve
from entrypoint.cluster.spec import ClusterSpec, Member
from entrypoint.errors import Problem
from entrypoint.log import Say
from entrypoint.rendezvous.outcome import PortClosedError, PortTakenError

BACKLOG = 4096
"""Workers that may connect at the same moment; Linux limits it to net.core.somaxconn."""

RETRY_SECONDS = 0.1
LOOPBACK = "127.0.0.1"


def address_warning(me: Member) -> str | None:
    """Return a warning if this worker's address is not this machine's; takes at most 0.5 s."""
    host = me.address.host
    found = resolve([host]).get(host, ())
    if not found or any(has_address(address) for address in found):
        return None
    shown = host if host in found else f"{host} ({', '.join(found[:3])})"
    return (
        f"{me.task}'s address {shown} is not one of this machine's: fine if a router or Docker "
        f"(-p) forwards port {me.address.port}, else WORKER_INDEX or the list is wrong"
    )


async def open_port(host: str, me: Member, seconds: float, say: Say) -> socket.socket:
    """Return a socket that listens on this worker's port at `host`; "" means all interfaces.

    A port in use is retried for `seconds`. Raises PortTakenError, PortClosedError.
    """
    port, start = me.address.port, asyncio.get_running_loop().time()
    said = False
    while True:
        try:
            _bind_everywhere(port)
            return listen(host, port, BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise PortClosedError([_closed(me, error)]) from None
        if asyncio.get_running_loop().time() - start >= seconds:
            raise PortTakenError(_taken(me))
        if not said:
            say("WARNING", f"port {port} is taken; trying again for {seconds:g} s")
            said = True
        await asyncio.sleep(RETRY_SECONDS)


def listening_host(spec: ClusterSpec, me: Member) -> str:
    """Return the host to listen on: all interfaces, unless every worker is on this machine."""
    if not all(address.is_loopback for address in spec.addresses):
        return ""
    host = me.address.host
    found = resolve([host]).get(host, (LOOPBACK,))
    return next((address for address in found if ":" not in address), found[0])


def _bind_everywhere(port: int) -> None:
    """Raise OSError if anything listens on the port at any of this machine's addresses.

    TensorFlow's server will listen on all of them. This socket never accepts a connection.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", port))


def _taken(me: Member) -> str:
    port = me.address.port
    return (
        f"port {port} of {me.task} is taken. Something else on this machine listens there: another "
        "worker with the same index, a run that has not ended, or another program "
        f"(ss -ltnp 'sport = :{port}' names it)"
    )


def _closed(me: Member, error: OSError) -> Problem:
    advice = f"It cannot be opened: {error.strerror}."
    return Problem(f"port of {me.task}", str(me.address.port), "a port that may be opened", advice)
