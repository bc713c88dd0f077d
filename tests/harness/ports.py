"""Ports for workers that a test starts on one machine."""

import contextlib
import os
import random
import socket

SIDE_BY_SIDE = 16


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens, none of those that dialling sockets are given.

    Of processes that run tests side by side each has some of its own: a port is free until the
    test's workers listen on it.
    """
    found: list[int] = []
    mine = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % SIDE_BY_SIDE
    while len(found) < count:
        port = random.randrange(21_000 + mine, 32_000, SIDE_BY_SIDE)
        with contextlib.suppress(OSError), socket.socket() as plain:
            plain.bind(("", port))  # fails, too, if an earlier test's connections are remembered
            found += [port] if port not in found else []
    return found
