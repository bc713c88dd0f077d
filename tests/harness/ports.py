"""Ports for workers that a test starts on one machine."""

import contextlib
import os
import random
import socket
from collections import deque

SIDE_BY_SIDE = 16

_given: deque[int] = deque(maxlen=400)
"""The last ports that this process was given: on some of them nothing listens yet. More than a test
asks for at once, and fewer than the 687 that a process has."""


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens, none of those that dialling sockets are given.

    Of processes that run tests side by side each has some of its own: a port is free until the
    test's workers listen on it. Nor is one of them given twice soon after.
    """
    return [_free_port() for _ in range(count)]


def _free_port() -> int:
    """Return one, and remember it."""
    mine = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % SIDE_BY_SIDE
    while True:
        port = random.randrange(21_000 + mine, 32_000, SIDE_BY_SIDE)
        with contextlib.suppress(OSError), socket.socket() as plain:
            plain.bind(("", port))  # fails, too, if an earlier test's connections are remembered
            if port not in _given:
                _given.append(port)
                return port
