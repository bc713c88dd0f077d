"""Plays the neighbours of a ring's rank 0 for a test, byte by byte."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from cluster_trainer.collectives.ring.headers import Header, Operation, Record, Word
from cluster_trainer.collectives.ring.ring import Ring

LIMIT_SECONDS = 0.3
VALUES = np.arange(500, dtype=np.float32)
CONTENT = b"what each rank has"
ALIVE = Record(Word.ALIVE, 1, 1, 1).pack()
Message = tuple[Header, bytes]

CALLS: dict[str, Callable[[Ring], Any]] = {
    "sum": lambda ring: ring.all_reduce(VALUES),
    "gather": lambda ring: ring.all_gather(CONTENT),
    "broadcast": lambda ring: ring.broadcast(None, ring.size - 1),
    "barrier": Ring.barrier,
}


class Peer:
    """Both neighbours of rank 0: numbers go to `data`, records to `beside`.

    In a ring of two, both are the same rank. `last` is the left neighbour's rank.
    """

    def __init__(self, size: int = 2, **options: float) -> None:
        self.last = size - 1
        left, self.data = socket.socketpair()
        right, self.beside = socket.socketpair()
        options = {"time_limit_seconds": LIMIT_SECONDS, **options}
        self.ring = Ring(0, size, 1, left, right, **options)
        self.beside.send(ALIVE)
        self._over = threading.Event()

    def live(self) -> None:
        """Send heartbeats until the end."""

        def send() -> None:
            with suppress(OSError):  # the connection may end at the same time
                while not self._over.wait(LIMIT_SECONDS / 10):
                    self.beside.send(ALIVE)

        threading.Thread(target=send, daemon=True).start()

    def die(self) -> None:
        """Close the connections, as the kernel does for a process that has ended."""
        self.data.close()
        self.beside.close()

    def end(self) -> None:
        self._over.set()
        self.ring.close()
        self.die()


def messages(call: str, size: int = 2, operation: int = 1) -> list[Message]:
    """Return the messages from rank 0's left neighbour in one of CALLS: headers and contents."""
    others = size - 1

    def head(kind: Operation, length: int, *, later: int = 0, detail: int = 0) -> Header:
        return Header(1, operation + later, others, size, kind, detail, length)

    def each(number: int) -> bytes:
        return np.full(others, number, np.int64).tobytes()

    match call:
        case "sum":
            return [(head(Operation.ALL_REDUCE, len(VALUES)), VALUES.tobytes() * others)]
        case "gather":
            return [
                (head(Operation.SIZES, 8), each(len(CONTENT))),
                (head(Operation.ALL_GATHER, size * len(CONTENT), later=1), CONTENT * others),
            ]
        case "broadcast":
            return [(head(Operation.BROADCAST, len(CONTENT), detail=others), CONTENT)]
        case _:
            return [(head(Operation.BARRIER, 8), each(operation))]


def as_bytes(said: list[Message]) -> bytes:
    """Return messages as bytes for the connection."""
    return b"".join(header.pack() + content for header, content in said)
