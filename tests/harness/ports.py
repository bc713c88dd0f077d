"""Ports for workers that a test starts on one machine."""

import contextlib
import os
import random
import socket
from collections import deque

SIDE_BY_SIDE = 16

_given: deque[int] = deque(maxlen=400)
"""The ports that were returned most recently. Nothing may listen on some of them yet. It holds more
ports than a test requests at once, and fewer than the 687 that a process has."""


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens, outside of the range for outgoing connections.

    Test processes that run in parallel have separate ports, because a port is free until the test's
    workers listen on it. For the same reason, no port is returned again soon.
    """
    return [_free_port() for _ in range(count)]


def _free_port() -> int:
    """Return one free port, and remember it."""
    mine = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % SIDE_BY_SIDE
    while True:
        port = random.randrange(21_000 + mine, 32_000, SIDE_BY_SIDE)
        with contextlib.suppress(OSError), socket.socket() as plain:
            plain.bind(("", port))  # also fails if the kernel remembers earlier connections
            if port not in _given:
                _given.append(port)
                return port
