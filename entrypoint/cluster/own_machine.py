"""The names and addresses of this machine."""

from __future__ import annotations

import contextlib
import errno
import queue
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from entrypoint.cluster.look_ups import Found, LookUps, is_open

RESOLVE_SECONDS = 0.5
"""The time limit of all look-ups together, if a missing name does little harm."""
OWN_SECONDS = 5.0
"""The time limit of all look-ups together, until one host is known to be this machine."""


@dataclass(frozen=True)
class Machine:
    """The properties of this machine that identify it in a host list. Tests pass their own."""

    host_name: str
    has_address: Callable[[str], bool]
    """Whether an IP address is one of this machine's."""
    resolve: Callable[[Iterable[str]], Mapping[str, tuple[str, ...]]]
    """Host names or IP addresses -> their IP addresses: () for a name that does not exist. A name
    is missing from the result if no name server has answered."""


def this_machine() -> Machine:
    """Return the machine on which this process runs."""
    return Machine(socket.gethostname(), has_address, resolve_own)


def has_address(address: str) -> bool:
    """Whether this machine has the IP address: only then can a UDP socket be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def listen(host: str, port: int, backlog: int | None = None) -> socket.socket:
    """Listen on a port of a host; "" means all addresses, with IPv6. Raises OSError.

    Sets SO_REUSEADDR, so that connections in TIME-WAIT do not matter; never SO_REUSEPORT.
    """
    dual = (not host or ":" in host) and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
    try:
        return socket.create_server(
            (host, port), family=family, backlog=backlog, dualstack_ipv6=dual
        )
    except OSError as error:
        if host or error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise
    return socket.create_server(("", port), backlog=backlog)  # IPv6 is disabled


def resolve(hosts: Iterable[str], seconds: float = RESOLVE_SECONDS) -> dict[str, tuple[str, ...]]:
    """Return the IP addresses that are found within the time limit."""
    known = _ask(list(dict.fromkeys(hosts)), lambda _: seconds)
    return {host: addresses for host, addresses in known.items() if addresses}


def resolve_own(hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return `Machine.resolve`'s result; wait longer while no host is known to be this machine.

    The host with this machine's name, with or without a domain, is looked up first.
    """
    own = socket.gethostname().lower()
    names = sorted(dict.fromkeys(hosts), key=lambda host: _label(host) != _label(own))

    def seconds(known: Mapping[str, tuple[str, ...]]) -> float:
        addresses = (address for found in known.values() for address in found)
        is_found = own in names or any(map(has_address, addresses))
        return RESOLVE_SECONDS if is_found else OWN_SECONDS

    return _ask(names, seconds)


def _label(host: str) -> str:
    return host.partition(".")[0]


def _ask(
    names: Sequence[str], seconds: Callable[[Mapping[str, tuple[str, ...]]], float]
) -> dict[str, tuple[str, ...]]:
    """Look up all names at once; `seconds` gives the time limit for the results so far."""
    answers: queue.SimpleQueue[tuple[str, Found]] = queue.SimpleQueue()
    look_ups = LookUps()

    def ask(name: str) -> None:
        look_ups.ask(name, 0, lambda found: answers.put((name, found)))

    for name in names:
        ask(name)
    start = time.monotonic()
    known: dict[str, tuple[str, ...]] = {}
    with contextlib.suppress(queue.Empty):  # the time is over
        for _ in names:
            left = start + seconds(known) - time.monotonic()
            name, found = answers.get(timeout=max(0.0, left))
            if not is_open(found):
                known[name] = _addresses(found)
    return known


def _addresses(found: Found) -> tuple[str, ...]:
    if isinstance(found, Exception):
        return ()
    return tuple(dict.fromkeys(str(address[0]) for _, address in found))
