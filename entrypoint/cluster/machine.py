"""What this machine is called and which addresses are its own."""

from __future__ import annotations

import contextlib
import functools
import queue
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from entrypoint.cluster.look_ups import Found, LookUps

RESOLVE_SECONDS = 0.5
"""For all names together, so that a wrong configuration is refused within a second."""


@dataclass(frozen=True)
class Machine:
    """The machine, as far as finding its place in a list needs it; tests make up their own."""

    host_name: str
    has_address: Callable[[str], bool]
    """Whether an IP address is one of this machine's."""
    resolve: Callable[[Iterable[str]], Mapping[str, tuple[str, ...]]]
    """Names or IP addresses -> their IP addresses; a name without an answer is left out."""


def this_machine() -> Machine:
    """Return the machine that we run on."""
    return Machine(socket.gethostname(), has_address, resolve)


def has_address(address: str) -> bool:
    """Whether a UDP socket can be bound to the IP address: only an own address allows that."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def resolve(hosts: Iterable[str], seconds: float = RESOLVE_SECONDS) -> dict[str, tuple[str, ...]]:
    """Return the hosts' IP addresses that are known within the time."""
    answers: queue.SimpleQueue[tuple[str, Found]] = queue.SimpleQueue()
    names, look_ups = set(hosts), LookUps()
    for name in names:
        look_ups.ask(name, 0, functools.partial(_put, answers, name))
    deadline = time.monotonic() + seconds
    known: dict[str, tuple[str, ...]] = {}
    with contextlib.suppress(queue.Empty):  # the time is over
        for _ in names:
            name, found = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            if not isinstance(found, Exception):
                known[name] = tuple(dict.fromkeys(str(address[0]) for _, address in found))
    return known


def _put(answers: queue.SimpleQueue[tuple[str, Found]], name: str, found: Found) -> None:
    """Note what was found of a name."""
    answers.put((name, found))
