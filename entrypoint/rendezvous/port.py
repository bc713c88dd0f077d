"""The worker's own port and its own address."""

from __future__ import annotations

import asyncio
import errno
import socket

from entrypoint.cluster.machine import has_address, resolve
from entrypoint.cluster.spec import Member
from entrypoint.errors import Problem
from entrypoint.rendezvous.attempt import Say
from entrypoint.rendezvous.outcome import PortTakenError

BACKLOG = 4096
"""Workers that may connect at the same moment; Linux cuts it down to net.core.somaxconn."""

RETRY_SECONDS = 0.1


def address_warning(me: Member) -> str | None:
    """Return what to say if the own address is not one of this machine's; takes up to 0.5 s."""
    host = me.address.host
    found = resolve([host]).get(host, ())
    if not found or any(has_address(address) for address in found):
        return None
    shown = host if host in found else f"{host} ({', '.join(found[:3])})"
    return (
        f"{me.task}'s address {shown} is none of this machine's: fine if a router or Docker (-p) "
        f"forwards port {me.address.port}, else WORKER_INDEX or the list is wrong"
    )


async def open_port(me: Member, seconds: float, say: Say) -> socket.socket:
    """Return a socket that listens on the own port, on all interfaces.

    A port that is taken is tried again for so many seconds. Raises PortTakenError.
    """
    port, begin = me.address.port, asyncio.get_running_loop().time()
    said = False
    while True:
        try:
            return _listen(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise PortTakenError([_closed(me, error)]) from None
        if asyncio.get_running_loop().time() - begin >= seconds:
            raise PortTakenError([_taken(me)])
        if not said:
            say("WARNING", f"port {port} is taken; trying again for {seconds:g} s")
            said = True
        await asyncio.sleep(RETRY_SECONDS)


def _listen(port: int) -> socket.socket:
    """Listen with SO_REUSEADDR (a closed port's remains don't count), never SO_REUSEPORT."""
    try:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        listener = socket.create_server(
            ("", port), family=family, backlog=BACKLOG, dualstack_ipv6=dual
        )
    except OSError as error:
        if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise
        listener = socket.create_server(("", port), backlog=BACKLOG)  # IPv6 is switched off
    listener.settimeout(0)
    return listener


def _taken(me: Member) -> Problem:
    """Return the problem of a port on which something else listens."""
    advice = (
        "Something else on this machine listens there: another worker with the same index, a run "
        f"that has not ended, or another program (ss -ltnp 'sport = :{me.address.port}' names it)."
    )
    return Problem(f"port of {me.task}", str(me.address.port), "a port that is free", advice)


def _closed(me: Member, error: OSError) -> Problem:
    """Return the problem of a port that may not be opened."""
    advice = f"It cannot be opened: {error.strerror}."
    return Problem(f"port of {me.task}", str(me.address.port), "a port that may be opened", advice)
