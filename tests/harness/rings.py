"""Rings within one process: a thread for each rank."""

import socket
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


@contextmanager
def rings(
    size: int,
    connect: Callable[[], Pair] = socket.socketpair,
    generation: int = 1,
    **options: float | None,
) -> Iterator[list[Ring]]:
    """Connect so many ranks; what is not closed at the end is closed then."""
    pairs = [connect() for _ in range(size)]  # the first ends are the ranks' right
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
    """Return what the call gave on each rank, called on all at once: a value, or an error."""

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
    """Return what the call gave on each rank; raise if it failed on one."""
    found = outcomes(made, call)
    for outcome in found:
        if isinstance(outcome, Exception):
            raise outcome
    return found
