"""A worker's address (host and port), and whether the internet can reach it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from entrypoint.errors import listed

ACCEPTED = "host:port with a port from 1 to 65535; an IPv6 host in brackets"

_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
                   r"(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*\.?")  # fmt: skip
"""Host names as DNS and Compose have them (services may contain an underscore)."""

_BRACKETED = re.compile(r"\[([^\[\]]*)\](?::(.*))?", re.DOTALL)
_LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_IP = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressError(ValueError):
    """The text is not an address; the message is a sentence that explains why."""


@dataclass(frozen=True, order=True)
class Address:
    """The address on which a worker listens; `str()` gives TensorFlow's notation."""

    host: str
    """A lower-case name, or an IP address in its shortest form, without brackets."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def spelled_one_way(self) -> Address:
        """The address without a name's final dot, and as IPv4 if an IPv6 address wraps it."""
        address = _ip(self.host)
        return Address(str(_unmapped(address)) if address else self.host.rstrip("."), self.port)

    @property
    def is_loopback(self) -> bool:
        """Whether the address means "this machine" on every machine."""
        address = _ip(self.host)
        if address is None:
            name = self.host.rstrip(".")
            return name in _LOOPBACK_NAMES or name.endswith(".localhost")
        return _unmapped(address).is_loopback

    @property
    def is_public(self) -> bool:
        """Whether the address is a public IP address. A name counts as not public."""
        address = _ip(self.host)
        return address is not None and _unmapped(address).is_global


def parse_address(text: str, default_port: int) -> Address:
    """Parse an address. Raises AddressError."""
    host, port = _split(text.strip())
    return Address(_host(host.lower()), default_port if port is None else _port(port))


def _split(text: str) -> tuple[str, str | None]:
    """Split a text into host and port; the port is None if the text has none."""
    if match := _BRACKETED.fullmatch(text):
        if not isinstance(_ip(match[1]), ipaddress.IPv6Address):
            reason = "The text in brackets is not an IPv6 address."
            raise AddressError(reason)
        return match[1], match[2]
    if "://" in text:
        reason = "Leave out the scheme, such as http://."
        raise AddressError(reason)
    if text.count(":") > 1:
        reason = "An IPv6 address needs brackets: [fd00::1]:2222."
        raise AddressError(reason)
    host, colon, port = text.partition(":")
    return host, port if colon else None


def _host(host: str) -> str:
    address = _ip(host)
    if address is not None:
        if address.is_unspecified or address.is_multicast:
            reason = f"{host} is not the address of one machine."
            raise AddressError(reason)
        return str(address)
    if not host:
        reason = "The host is missing."
        raise AddressError(reason)
    if not _NAME.fullmatch(host) or host.rstrip(".").rpartition(".")[2].isdigit():
        reason = "The host is neither a name (ASCII letters, digits, - _ .) nor an IP address."
        raise AddressError(reason)
    return host


def _port(port: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:  # noqa: PLR2004
        reason = "The port is not a number from 1 to 65535."
        raise AddressError(reason)
    return int(port)


def _ip(host: str) -> _IP | None:
    """Return a host as an IP address; None for a name or for an address with a zone (`%eth0`)."""
    try:
        return None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None


def _unmapped(address: _IP) -> _IP:
    """Return the IPv4 address that an IPv6 address wraps (`::ffff:10.0.0.1`), otherwise itself."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def public_warning(addresses: Sequence[Address]) -> str | None:
    """Return a warning if the list has public IP addresses. Names are not looked up."""
    public = [str(address) for address in addresses if address.is_public]
    if not public:
        return None
    what = "address" if len(public) == 1 else "addresses"
    return (
        f"public {what} {listed(public)}: anyone who reaches TensorFlow's port can run code "
        "through it, with or without CLUSTER_TOKEN; use a private network, or a firewall that "
        f"lets only the workers in (docs/how-to/firewall.md)"
    )
