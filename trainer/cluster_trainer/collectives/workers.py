"""Messages between workers: numbers, and whole files.

Both take the path of the gradients, so they need no port, address or secret of their own. Every
worker calls the same methods in the same order.
"""

# ruff: noqa: D102  Workers says what each method does

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.replicas import Replicas, gathered, ring_of, summed
from cluster_trainer.collectives.ring.errors import PeerLeft, RingError

WORD = np.dtype(np.int64)
END = "the end of its program"
CHUNK_WORDS = 2**19
CHUNK_BYTES = CHUNK_WORDS * WORD.itemsize


class Workers(ABC):
    """The processes that train together.

    The purpose of a call (`what`), in a few words, must be the same on all workers. A ring compares
    it, and reports workers that are in different calls.
    """

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of processes."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """This process's rank, from 0."""

    @property
    def members(self) -> tuple[int, ...]:
        """Each rank's place in the list of all workers, some of which may be missing."""
        return tuple(range(self.count))

    @property
    def newcomers(self) -> frozenset[int]:
        """The newcomers' ranks; see newcomers.py."""
        return frozenset()

    def slowest(self, seconds: float, what: str = "") -> float:
        """Return the largest of all workers' times."""
        return self.largest([seconds], what)[0]

    def largest(self, numbers: list[float], what: str = "") -> list[float]:
        """Return the largest of each number over all workers."""
        rows = self._rows(np.array(numbers, np.float64), what)
        return [float(number) for number in rows.max(axis=0)]

    def gather(self, number: int, what: str = "") -> list[int]:
        """Return every worker's number, in rank order."""
        return [int(one) for one in self._rows(np.array([number], WORD), what)[:, 0]]

    @abstractmethod
    def _rows(self, mine: np.ndarray, what: str) -> np.ndarray:
        """Return every worker's numbers [n], in rank order: [count, n]."""

    @abstractmethod
    def broadcast(self, content: bytes | None, holder: int, what: str = "") -> bytes:
        """Return the content that the worker of rank `holder` gives; the others give None."""

    def leave_out(self, answers: Sequence[Any], what: str) -> bool:  # noqa: ARG002
        """Let the others continue without newcomers that answer differently; see RenewableRing."""
        return False

    @abstractmethod
    def part(self) -> Exception | None:
        """Meet once more before all workers end: one that leaves early tears the others' last call.

        Returns:
            what has ended one before it came here; None where none has failed, as far as is known.
        """

    # No worker can join TensorFlow's cluster, and it sends no such messages.
    def trust_newcomers(self) -> None:  # noqa: B027
        """Trust all workers; all of them call it."""

    def leave(self) -> None:  # noqa: B027
        """Report that this worker no longer waits to part."""

    def fail(self, reason: str) -> None:  # noqa: B027
        """Report that this worker fails before it has parted."""


def workers_of(strategy: tf.distribute.Strategy) -> Workers:
    """Return the processes of a strategy, or those of the ring that its replica belongs to."""
    if ring := ring_of(strategy):
        return WorkersOfRing(ring)
    return _workers_of_strategy(strategy)


@cache
def _workers_of_strategy(strategy: tf.distribute.Strategy) -> "WorkersOfStrategy":
    """Return one object for all fits of a process: each object has its own traces."""
    return WorkersOfStrategy(strategy, Replicas.of_strategy(strategy))


class WorkersOfRing(Workers):
    """The workers of a ring, which cannot be used once they have parted."""

    def __init__(self, ring: RenewableRing) -> None:
        self._ring = ring

    @property
    def count(self) -> int:
        return self._ring.size

    @property
    def rank(self) -> int:
        return self._ring.rank

    @property
    def members(self) -> tuple[int, ...]:
        return self._ring.members

    @property
    def newcomers(self) -> frozenset[int]:
        return self._ring.newcomers

    def _rows(self, mine: np.ndarray, what: str) -> np.ndarray:
        rows = self._ring.all_gather(mine, what=what)
        return np.stack([np.frombuffer(row, mine.dtype) for row in rows])

    def broadcast(self, content: bytes | None, holder: int, what: str = "") -> bytes:
        return self._ring.broadcast(content, holder, what=what)

    def leave_out(self, answers: Sequence[Any], what: str) -> bool:
        return self._ring.leave_out(answers, what)

    def trust_newcomers(self) -> None:
        self._ring.trust_newcomers()

    def part(self) -> Exception | None:
        """Meet once more; return None if this process has parted before, too.

        A worker that has left has not failed: it did not wait any longer for this one.
        """
        failure = None
        if self._ring.is_closed:
            return None
        try:
            self._ring.barrier(what=END)
        except PeerLeft:
            pass
        except RingError as error:
            failure = error
        self._ring.close()
        return failure

    def leave(self) -> None:
        self._ring.leave()

    def fail(self, reason: str) -> None:
        self._ring.abort(reason)


class WorkersOfStrategy(Workers):
    """The processes of a strategy, whose replicas are in step."""

    def __init__(self, strategy: tf.distribute.Strategy, replicas: Replicas) -> None:
        self._strategy, self._replicas = strategy, replicas

    @property
    def count(self) -> int:
        return self._replicas.workers

    @property
    def rank(self) -> int:
        return self._replicas.first // self._replicas.local

    def _rows(self, mine: np.ndarray, what: str) -> np.ndarray:  # noqa: ARG002
        if self.count == 1:
            return mine[np.newaxis]
        rows: np.ndarray = self._gathered(tf.constant(mine[np.newaxis])).numpy()
        return rows[:: self._replicas.local]

    def broadcast(self, content: bytes | None, holder: int, what: str = "") -> bytes:
        if self.count == 1:
            return content or b""
        size = self.gather(len(content or b""), what)[holder]
        replica = tf.constant(holder * self._replicas.local, tf.int32)
        parts = [
            self._from(tf.constant(_words(content, first)), replica).numpy().tobytes()
            for first in range(0, size, CHUNK_BYTES)
        ]
        return b"".join(parts)[:size]

    def part(self) -> Exception | None:
        """Meet once more; a failure only shows that a worker has left."""
        with suppress(tf.errors.OpError):
            self.gather(0)
        return None

    @tf.function
    def _gathered(self, rows: tf.Tensor) -> tf.Tensor:
        # an op of the replica's own, which has a device; the argument has none
        return self._first(self._strategy.run(lambda: gathered(tf.identity(rows))))

    @tf.function
    def _from(self, words: tf.Tensor, replica: tf.Tensor) -> tf.Tensor:
        """Return the words of one replica, int64 [CHUNK_WORDS].

        It is a sum to which all others add 0. Integers are used, so that every bit arrives.
        """

        def add() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            mine = tf.equal(tf.cast(context.replica_id_in_sync_group, tf.int32), replica)
            return summed([words * tf.cast(mine, tf.int64)])[0]

        return self._first(self._strategy.run(add))

    def _first(self, values: tf.distribute.DistributedValues) -> tf.Tensor:
        return self._strategy.experimental_local_results(values)[0]


def _words(content: bytes | None, first: int) -> np.ndarray:
    """Return the part of the content that begins at byte `first`, padded with zeros."""
    part = (content or b"")[first : first + CHUNK_BYTES]
    return np.frombuffer(part.ljust(CHUNK_BYTES, b"\0"), WORD)
