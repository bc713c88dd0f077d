"""NCCL_SOCKET_IFNAME, and the interface that leads to the peers.

NCCL connects the GPUs of several workers over one interface. It reads the interface from
NCCL_SOCKET_IFNAME, or chooses one itself. It ignores the addresses in the list of workers, and
hangs on the wrong interface. This module does not predict NCCL's choice. It names the interface
that leads to the peers.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from entrypoint.errors import ConfigurationError, Problem, listed

SETTING = "NCCL_SOCKET_IFNAME"
LOOPBACK = "lo"
ROUTES = Path("/proc/net/route")
"""IPv4 only: the interface, the destination and, in the eighth column, its mask (proc(5))."""
MASK_COLUMN = 7

Route = Callable[[str], str]
"""IP address -> the interface that leads there; "" if it is not known."""


def check_interface(
    environ: Mapping[str, str], gpus: int, names: Callable[[], Sequence[str]]
) -> None:
    """Raise ConfigurationError if NCCL_SOCKET_IFNAME matches no interface: NCCL would fail."""
    setting = environ.get(SETTING, "")
    if not gpus or not _is_set(setting):
        return
    known = names()
    if known and not _matching(setting, known):
        accepted = f"the beginning of an interface's name; this container has {listed(known)}"
        advice = (
            "=eth0 means exactly eth0. ^docker means all names that do not begin with docker. "
            "Separate names with commas."
        )
        raise ConfigurationError([Problem(SETTING, setting, accepted, advice)])


def route_note(
    environ: Mapping[str, str], peers: Mapping[str, str], names: Sequence[str], route: Route
) -> str | None:
    """Return a note that names the interface to the peers, if NCCL may choose another one.

    Args:
        environ: the command's variables.
        peers: each peer's name -> its IP address.
        names: this container's interfaces.
        route: from an IP address to the interface that leads there.
    """
    setting = environ.get(SETTING, "")
    if len([name for name in names if name != LOOPBACK]) < 2:  # noqa: PLR2004 -- there is no choice
        return None
    for peer, address in peers.items():
        way = route(address)
        if way in ("", LOOPBACK) or (_is_set(setting) and _matching(setting, [way])):
            continue
        why = f"{SETTING}={setting} selects another" if _is_set(setting) else "NCCL uses another"
        return (
            f"{peer} is reached over {way}. If the first step hangs, {why}: "
            f"-e {SETTING}=={way} selects this one (docs/how-to/gpus.md)"
        )
    return None


def interfaces() -> list[str]:
    """Return the names of this container's network interfaces."""
    with contextlib.suppress(OSError):
        return [name for _, name in socket.if_nameindex()]
    return []


def route_to(address: str, routes: Path = ROUTES) -> str:
    """Return the interface that leads to an IPv4 address; "" if it is not known."""
    try:
        target = _number(socket.inet_aton(address))
        rows = [line.split() for line in routes.read_text(encoding="ascii").splitlines()[1:]]
        fitting = [(_mask(row), row[0]) for row in rows if target & _mask(row) == int(row[1], 16)]
    except (OSError, ValueError, IndexError):
        return ""
    return max(fitting, key=lambda one: one[0].bit_count(), default=(0, ""))[1]


def _mask(row: Sequence[str]) -> int:
    return int(row[MASK_COLUMN], 16)


def _number(packed: bytes) -> int:
    """Return an address in the kernel's notation: its bytes as a number in native order."""
    return int(struct.unpack("=I", packed)[0])


def _is_set(setting: str) -> bool:
    """Whether NCCL applies the setting: it ignores values of one character."""
    return len(setting) > 1


def _matching(setting: str, names: Sequence[str]) -> list[str]:
    """Return the names that a list such as `eth,ib`, `=eth0` or `^docker` selects."""
    others = setting.startswith("^")
    entries = setting.removeprefix("^")
    exact = entries.startswith("=")
    wanted = [entry.partition(":")[0] for entry in entries.removeprefix("=").split(",") if entry]

    def is_wanted(name: str) -> bool:
        return any(name == entry if exact else name.startswith(entry) for entry in wanted)

    return [name for name in names if is_wanted(name) != others]
