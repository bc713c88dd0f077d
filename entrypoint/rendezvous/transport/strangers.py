"""The places of those who have not shown yet that they are workers, shared by their addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from entrypoint.rendezvous.transport.connection import Connection

MOST_STRANGERS = 256
"""Places, beside one for each worker: all of those may come at the same moment."""

IPV6_HOST_BITS = 64
"""Whoever has one IPv6 address may as well use 2^64 of them (RFC 4291, section 2.5.4)."""


class Strangers:
    """Connections with a place. Where one is too many, somebody has to go at once.

    It is the oldest of the address that has the most. So a flood from one address crowds out itself
    alone, and whoever shares that address still has as long as it takes to fill all places anew.
    """

    def __init__(self, workers: int) -> None:
        self._places = workers + MOST_STRANGERS
        self._senders: dict[Connection, str] = {}
        self._crowds: dict[str, dict[Connection, None]] = {}

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._senders)

    def add(self, connection: Connection) -> Connection | None:
        """Give a newcomer a place; return the one that has to go for it, if any."""
        sender = sender_of(connection.ip)
        self._senders[connection] = sender
        self._crowds.setdefault(sender, {})[connection] = None
        if len(self._senders) <= self._places:
            return None
        largest = max(self._crowds.values(), key=len)
        oldest = next(iter(largest))
        self.discard(oldest)
        return oldest

    def discard(self, connection: Connection) -> None:
        """Free the place of a connection, if it has one."""
        sender = self._senders.pop(connection, None)
        if sender is None:
            return
        del self._crowds[sender][connection]
        if not self._crowds[sender]:
            del self._crowds[sender]


def sender_of(ip: str) -> str:
    """Return what all addresses have in common that one sender can choose from."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:  # it has gone already, and left no address
        return ip
    if isinstance(address, ipaddress.IPv6Address):
        return f"{int(address) >> IPV6_HOST_BITS:x}::/64"
    return ip
