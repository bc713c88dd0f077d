"""Rings within one process: a thread for each rank."""

import ctypes
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from cluster_trainer.collectives.ring.ring import Ring

SECONDS = 30.0

T = TypeVar("T")

Pair = tuple[socket.socket, socket.socket]


def over_tcp() -> Pair:
    """Return both ends of a connection over the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        end = socket.create_connection(server.getsockname())
        return end, server.accept()[0]


SO_ATTACH_FILTER = 26  # asm-generic/socket.h
DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # BPF_RET: take 0 bytes of each packet


def lose_what_arrives(connection: socket.socket) -> None:
    """Make the kernel drop each packet to this end, as if the network were cut in one direction.

    The packets are not acknowledged, but this end can still send. No privileges are needed.
    """
    program = ctypes.create_string_buffer(DROP_ALL, len(DROP_ALL))
    filtering = struct.pack("HP", 1, ctypes.addressof(program))
    connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filtering)


@contextmanager
def rings(
    size: int,
    connect: Callable[[], Pair] = socket.socketpair,
    generation: int = 1,
    **options: float | None,
) -> Iterator[list[Ring]]:
    """Connect `size` ranks, and close the rings at the end."""
    pairs = [connect() for _ in range(size)]  # the first ends are the ranks' right connections
    made = [
        Ring(rank, size, generation, pairs[rank - 1][1], pairs[rank][0], **options)
        for rank in range(size)
    ]
    try:
        yield made
    finally:
        for ring in made:
            ring.close()


def outcomes(made: list[Ring], call: Callable[[Ring], T]) -> list[T | Exception]:
    """Make a call on all ranks at the same time; return each rank's result or error."""

    def one(ring: Ring) -> T | Exception:
        try:
            return call(ring)
        except Exception as problem:  # noqa: BLE001 -- the test judges
            return problem

    with ThreadPoolExecutor(len(made)) as pool:
        results = pool.map(one, made, timeout=SECONDS)
        try:
            return list(results)
        except TimeoutError:
            for ring in made:
                ring.abort("the test waited too long")
            raise


def on_all(made: list[Ring], call: Callable[[Ring], T]) -> list[T]:
    """Make a call on all ranks; return each rank's result, or raise if a rank has failed."""
    found = outcomes(made, call)
    for outcome in found:
        if isinstance(outcome, Exception):
            raise outcome
    return found
