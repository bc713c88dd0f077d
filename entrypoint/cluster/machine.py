"""What this machine is called and which addresses are its own."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

RESOLVE_SECONDS = 0.5
"""For all names together, so that a wrong configuration is refused within a second."""

RESOLVERS = 32
"""Names that are asked for at the same time."""


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
    """Return the hosts' IP addresses that are known within the time.

    The threads are daemons that nobody joins: a name server that does not answer holds a lookup
    for many seconds, and must not hold the start.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, tuple[str, ...]]] = queue.SimpleQueue()
    names = set(hosts)
    for name in names:
        waiting.put(name)
    for _ in range(min(RESOLVERS, len(names))):
        threading.Thread(target=_answer, args=(waiting, answers), daemon=True).start()
    return dict(_until(answers, len(names), time.monotonic() + seconds))


def _answer(
    waiting: queue.SimpleQueue[str],
    answers: queue.SimpleQueue[tuple[str, tuple[str, ...]]],
) -> None:
    """Look up names until none is left."""
    while True:
        try:
            name = waiting.get_nowait()
        except queue.Empty:
            return
        answers.put((name, _look_up(name)))


def _look_up(name: str) -> tuple[str, ...]:
    """Return a name's IP addresses, none if it does not resolve."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):  # UnicodeError: a name that IDNA cannot encode
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def _until(
    answers: queue.SimpleQueue[tuple[str, tuple[str, ...]]],
    count: int,
    deadline: float,
) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield so many answers, fewer if the deadline comes first; no answer is left out."""
    for _ in range(count):
        try:
            name, addresses = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return
        if addresses:
            yield name, addresses
