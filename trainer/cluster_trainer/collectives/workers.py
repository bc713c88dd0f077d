"""Exchanges messages between workers: numbers, and whole files.

They take the same path as gradients, so they need no port, address or secret of their own. All
workers must call the same methods in the same order.
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

    Each exchange has a purpose (`what`), in a few words, which must be the same on all workers. A
    ring compares it, and reports workers that are in different calls.
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
        """Each rank's place in the list of all workers, of which some may be missing."""
        return tuple(range(self.count))

    @property
    def newcomers(self) -> frozenset[int]:
        """The newcomers' ranks; see newcomers.py."""
        return frozenset()

    def slowest(self, seconds: float, what: str = "") -> float:
        """Return the largest of all workers' times, in seconds."""
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
        """Return the content that the worker of rank `holder` gives; all others give None."""

    def leave_out(self, answers: Sequence[Any], what: str) -> bool:  # noqa: ARG002
        """Let the others continue without newcomers whose answers differ; see RenewableRing."""
        return False

    def leave_out_or_part(self, answers: Sequence[Any], what: str) -> None:
        """Before a refusal, leave the ring: newcomers that differ, or all workers if others differ.

        Raises:
            PeerUnfit: only newcomers differ, and this worker is not one of them; see newcomers.py.
        """
        if not self.leave_out(answers, what):
            self.part()

    @abstractmethod
    def part(self) -> Exception | None:
        """Wait for all workers before they end: an early exit would break the others' last call.

        Returns:
            the error of a worker that has failed; None: no failure is known.
        """

    # Only a ring overrides these: no worker can join TensorFlow's cluster or send it such messages.
    def trust_newcomers(self) -> None:  # noqa: B027
        """Trust all workers; all workers call this."""

    def leave(self) -> None:  # noqa: B027
        """Report that this worker ends without waiting for the others."""

    def fail(self, reason: str) -> None:  # noqa: B027
        """Report that this worker has failed."""


def workers_of(strategy: tf.distribute.Strategy) -> Workers:
    """Return the workers of a strategy, or those of the ring that its replicas belong to."""
    if ring := ring_of(strategy):
        return WorkersOfRing(ring)
    return _workers_of_strategy(strategy)


@cache
def _workers_of_strategy(strategy: tf.distribute.Strategy) -> "WorkersOfStrategy":
    """Return the workers of a strategy: one object for all fits, because it has its own traces."""
    return WorkersOfStrategy(strategy, Replicas.of_strategy(strategy))


class WorkersOfRing(Workers):
    """The workers of a ring, which cannot be used after `part`."""

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
        """Wait for all workers, and close the ring; see Workers. Do nothing if it is closed.

        A worker that has left, because it waited too long for this one, has not failed.
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
        """Wait for all workers; see Workers. A failure only shows that one has left."""
        with suppress(tf.errors.OpError):
            self.gather(0)
        return None

    @tf.function
    def _gathered(self, rows: tf.Tensor) -> tf.Tensor:
        # `tf.identity` makes an operation on the replica's device; the argument has none.
        return self._first(self._strategy.run(lambda: gathered(tf.identity(rows))))

    @tf.function
    def _from(self, words: tf.Tensor, replica: tf.Tensor) -> tf.Tensor:
        """Return the words of one replica, int64 [CHUNK_WORDS].

        They are a sum to which all other replicas add 0. Integers keep every bit.
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
