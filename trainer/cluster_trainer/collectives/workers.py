"""What one worker knows, told to all: numbers, and whole files.

Both go the way of the gradients, so that they need no port, no address and no secret of their own.
Every worker calls the same methods in the same order.
"""

from contextlib import suppress
from functools import cache
from typing import Protocol

import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.group import AnyRing
from cluster_trainer.collectives.replicas import Replicas, gathered, ring_of, summed
from cluster_trainer.collectives.ring.errors import RingError

WORD = np.dtype(np.int64)
END = "the end of its program"
CHUNK_WORDS = 2**19
CHUNK_BYTES = CHUNK_WORDS * WORD.itemsize


class Workers(Protocol):
    """The processes that train together.

    What a call is for (`what`), in a few words, has to be the same on all. A ring compares it, and
    says of workers that are at different calls what each of them is at.
    """

    @property
    def count(self) -> int:
        """How many there are."""

    def slowest(self, seconds: float, what: str = "") -> float:
        """Return the largest of all workers' times."""

    def largest(self, numbers: list[float], what: str = "") -> list[float]:
        """Return the largest of each number over all workers."""

    def gather(self, number: int, what: str = "") -> list[int]:
        """Return every worker's number, in the order of their ranks."""

    def broadcast(self, content: bytes | None, holder: int, what: str = "") -> bytes:
        """Return the content that the worker of rank `holder` gives; the others give None."""

    def part(self) -> None:
        """Meet once more before all workers end: one that leaves early tears the others' last call.

        That this meeting fails only says that somebody has left.
        """


def workers_of(strategy: tf.distribute.Strategy) -> Workers:
    """Return the processes of a strategy, or those of the ring that its replica is one of."""
    if ring := ring_of(strategy):
        return WorkersOfRing(ring)
    return _workers_of_strategy(strategy)


@cache
def _workers_of_strategy(strategy: tf.distribute.Strategy) -> "WorkersOfStrategy":
    """Return one object for all of a process's fits: each has traces of its own."""
    return WorkersOfStrategy(strategy, Replicas.of(strategy))


class WorkersOfRing:
    """Those of a ring.

    Args:
        ring: which connects them.
    """

    def __init__(self, ring: AnyRing) -> None:
        self._ring = ring

    @property
    def count(self) -> int:
        """How many there are."""
        return self._ring.size

    def slowest(self, seconds: float, what: str = "") -> float:
        """Return the largest of all workers' times."""
        return self.largest([seconds], what)[0]

    def largest(self, numbers: list[float], what: str = "") -> list[float]:
        """Return the largest of each number over all workers."""
        rows = self._ring.all_gather(np.array(numbers, np.float64), what=what)
        found = np.max([np.frombuffer(row, np.float64) for row in rows], axis=0)
        return [float(number) for number in found]

    def gather(self, number: int, what: str = "") -> list[int]:
        """Return every worker's number, in the order of their ranks."""
        rows = self._ring.all_gather(np.array([number], WORD), what=what)
        return [int(np.frombuffer(row, WORD)[0]) for row in rows]

    def broadcast(self, content: bytes | None, holder: int, what: str = "") -> bytes:
        """Return the content that the worker of rank `holder` gives; the others give None."""
        return self._ring.broadcast(content, holder, what=what)

    def part(self) -> None:
        """Meet once more before all workers end; the ring is of no use after that."""
        with suppress(RingError):
            self._ring.barrier(what=END)
        self._ring.close()


class WorkersOfStrategy:
    """The processes of a strategy.

    Args:
        strategy: whose replicas are in step.
        replicas: which those are.
    """

    def __init__(self, strategy: tf.distribute.Strategy, replicas: Replicas) -> None:
        self._strategy, self._replicas = strategy, replicas

    @property
    def count(self) -> int:
        """How many there are."""
        return self._replicas.workers

    def slowest(self, seconds: float, what: str = "") -> float:
        """Return the largest of all workers' times."""
        return self.largest([seconds], what)[0]

    def largest(self, numbers: list[float], what: str = "") -> list[float]:  # noqa: ARG002
        """Return the largest of each number over all workers."""
        if self._replicas.workers == 1:
            return numbers
        rows = self._gathered(tf.constant([numbers], tf.float32)).numpy()
        return [float(number) for number in rows.max(axis=0)]

    def gather(self, number: int, what: str = "") -> list[int]:  # noqa: ARG002
        """Return every worker's number, in the order of their ranks."""
        if self._replicas.workers == 1:
            return [number]
        numbers = self._gathered(tf.constant([number], tf.int64)).numpy()
        return [int(value) for value in numbers[:: self._replicas.local]]

    def broadcast(self, content: bytes | None, holder: int, what: str = "") -> bytes:  # noqa: ARG002
        """Return the content that the worker of rank `holder` gives; the others give None."""
        if self._replicas.workers == 1:
            return content or b""
        size = self.gather(len(content or b""))[holder]
        replica = tf.constant(holder * self._replicas.local, tf.int32)
        parts = [
            self._from(tf.constant(_words(content, first)), replica).numpy().tobytes()
            for first in range(0, size, CHUNK_BYTES)
        ]
        return b"".join(parts)[:size]

    def part(self) -> None:
        """Meet once more before all workers end: one that leaves early tears the others' last call.

        That this meeting fails only says that somebody has left.
        """
        with suppress(tf.errors.OpError):
            self.gather(0)

    @tf.function
    def _gathered(self, rows: tf.Tensor) -> tf.Tensor:
        # An op of the replica's own, which has a device; the argument has none.
        return self._first(self._strategy.run(lambda: gathered(tf.identity(rows))))

    @tf.function
    def _from(self, words: tf.Tensor, replica: tf.Tensor) -> tf.Tensor:
        """Return the words of one replica, int64 [CHUNK_WORDS].

        As a sum to which all others add 0: whole numbers, so that every bit arrives.
        """

        def add() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            mine = tf.equal(tf.cast(context.replica_id_in_sync_group, tf.int32), replica)
            return summed([words * tf.cast(mine, tf.int64)])[0]

        return self._first(self._strategy.run(add))

    def _first(self, values: tf.distribute.DistributedValues) -> tf.Tensor:
        return self._strategy.experimental_local_results(values)[0]


def _words(content: bytes | None, first: int) -> np.ndarray:
    """Return the part of the content that begins at byte `first`, filled up with zeros."""
    part = (content or b"")[first : first + CHUNK_BYTES]
    return np.frombuffer(part.ljust(CHUNK_BYTES, b"\0"), WORD)
