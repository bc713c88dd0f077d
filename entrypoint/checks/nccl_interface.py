"""Which network interface NCCL would take, and whether it leads to the peers.

NCCL connects the GPUs of several workers at addresses of an interface that it chooses by itself,
or by NCCL_SOCKET_IFNAME, whatever addresses the list of workers has. With the wrong one it hangs.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from entrypoint.errors import ConfigurationError, Problem, listed

SETTING = "NCCL_SOCKET_IFNAME"
BY_ITSELF = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")
"""The first of these that matches an interface is what NCCL takes where nothing is set
(ncclFindInterfaces in its src/misc/socket.cc)."""
GET_FLAGS, GET_ADDRESS = 0x8913, 0x8915
"""SIOCGIFFLAGS and SIOCGIFADDR of Linux; what they answer begins with a name of 16 bytes."""
RUNNING = 0x40
"""IFF_RUNNING: up, with a cable."""
IPV6 = Path("/proc/net/if_inet6")

Addresses = Mapping[str, Sequence[str]]
"""Interface -> its IP addresses, in the kernel's order, which is NCCL's, too."""


def check_interface(
    environ: Mapping[str, str], gpus: int, addresses: Callable[[], Addresses]
) -> None:
    """Raise ConfigurationError if NCCL_SOCKET_IFNAME leaves no interface: NCCL would fail."""
    setting = environ.get(SETTING, "")
    if not gpus or not _is_set(setting):
        return
    names = list(addresses())
    if names and not _matching(setting, names):
        accepted = f"the beginning of an interface's name; this container has {listed(names)}"
        advice = (
            "=eth0 is that very name, ^docker all but those that begin so; a comma between several."
        )
        raise ConfigurationError([Problem(SETTING, setting, accepted, advice)])


def interface_warning(
    environ: Mapping[str, str],
    peers: Mapping[str, str],
    addresses: Addresses,
    own_address: Callable[[str], str],
) -> str | None:
    """Return what to say where NCCL would take another interface than the one to the peers.

    Args:
        environ: the command's.
        peers: who -> its IP address.
        addresses: this container's.
        own_address: from an IP address to this container's own on the way there.
    """
    setting = environ.get(SETTING, "")
    taken = _taken(setting, list(addresses))
    for peer, address in peers.items():
        own = own_address(address)
        way = next((name for name, known in addresses.items() if own in known), "")
        by_choice = taken.startswith("ib") and not _is_set(setting)
        if way and taken and way not in ("lo", taken) and not by_choice:
            why = f"{SETTING}={setting}" if _is_set(setting) else "by itself"
            return (
                f"{peer} is reached over {way}, and NCCL would take {taken} ({why}): where that "
                f"does not lead to the peers, the first step hangs; -e {SETTING}=={way} names it "
                "(docs/gpu.md)"
            )
    return None


def own_addresses() -> dict[str, list[str]]:
    """Return this container's running interfaces that have an IP address."""
    import fcntl  # noqa: PLC0415 -- only where there are GPUs

    ipv6 = _ipv6()
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:

        def ask(question: int, name: str) -> bytes:
            request = struct.pack("256s", name.encode()[:15])
            return fcntl.ioctl(probe, question, request)[16:]

        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has gone
                if not int.from_bytes(ask(GET_FLAGS, name)[:2], sys.byteorder) & RUNNING:
                    continue
                found[name] = [address for known, address in ipv6 if known == name]
            with contextlib.suppress(OSError):  # it has none of IPv4
                found[name].insert(0, socket.inet_ntoa(ask(GET_ADDRESS, name)[4:8]))
    return {name: known for name, known in found.items() if known}


def own_address_towards(address: str) -> str:
    """Return this container's own IP address on the way to another; empty where there is no way."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _ipv6() -> list[tuple[str, str]]:
    """Return interfaces and their IPv6 addresses."""
    try:
        lines = IPV6.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return []
    fields = [line.split() for line in lines]
    return [(line[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line[0]))) for line in fields]


def _taken(setting: str, names: Sequence[str]) -> str:
    """Return the interface that NCCL meets the others at, an empty text if none."""
    rules = (setting,) if _is_set(setting) else BY_ITSELF
    matching = (name for rule in rules for name in _matching(rule, names))
    return next(matching, "")


def _is_set(setting: str) -> bool:
    """Whether NCCL takes it for a setting: a text of one character is none."""
    return len(setting) > 1


def _matching(setting: str, names: Sequence[str]) -> list[str]:
    """Return the names that a list such as `eth,ib`, `=eth0` or `^docker` chooses."""
    others = setting.startswith("^")
    entries = setting.removeprefix("^")
    exact = entries.startswith("=")
    wanted = [entry.partition(":")[0] for entry in entries.removeprefix("=").split(",") if entry]

    def is_wanted(name: str) -> bool:
        return any(name == entry if exact else name.startswith(entry) for entry in wanted)

    return [name for name in names if is_wanted(name) != others]
