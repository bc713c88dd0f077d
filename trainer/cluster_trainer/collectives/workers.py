"""What one worker knows, told to all: numbers, and whole files.

Both go the way of the gradients, so that they need no port, no address and no secret of their own.
Every worker calls the same methods in the same order.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.group import AnyRing
from cluster_trainer.collectives.newcomers import leave_out
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.replicas import Replicas, gathered, ring_of, summed
from cluster_trainer.collectives.ring.errors import PeerLeft, RingError

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

    @property
    def rank(self) -> int:
        """This one's place among them, from 0."""

    @property
    def members(self) -> tuple[int, ...]:
        """Each rank's place in the list of all workers, of which some may be missing."""

    @property
    def newcomers(self) -> frozenset[int]:
        """The ranks that are new to the others; see newcomers.py."""

    def slowest(self, seconds: float, what: str = "") -> float:
        """Return the largest of all workers' times."""

    def largest(self, numbers: list[float], what: str = "") -> list[float]:
        """Return the largest of each number over all workers."""

    def gather(self, number: int, what: str = "") -> list[int]:
        """Return every worker's number, in the order of their ranks."""

    def broadcast(self, content: bytes | None, holder: int, what: str = "") -> bytes:
        """Return the content that the worker of rank `holder` gives; the others give None."""

    def leave_out(self, answers: Sequence[Any], what: str) -> bool:
        """Have the others go on without newcomers that answer otherwise; see newcomers.py."""

    def trust_newcomers(self) -> None:
        """Take all for workers that fit; all of them call it."""

    def part(self) -> Exception | None:
        """Meet once more before all workers end: one that leaves early tears the others' last call.

        Returns:
            what has ended one before it came here; None where none has failed, as far as is known.
        """

    def leave(self) -> None:
        """Say that this worker has waited long enough to part; a strategy cannot."""

    def fail(self, reason: str) -> None:
        """Say that this worker fails before it has parted; a strategy cannot."""


def workers_of(strategy: tf.distribute.Strategy) -> Workers:
    """Return the processes of a strategy, or those of the ring that its replica is one of."""
    if ring := ring_of(strategy):
        return WorkersOfRing(ring)
    return _workers_of_strategy(strategy)


@cache
def _workers_of_strategy(strategy: tf.distribute.Strategy) -> "WorkersOfStrategy":
    """Return one object for all of a process's fits: each has traces of its own."""
    return WorkersOfStrategy(strategy, Replicas.of_strategy(strategy))


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

    @property
    def rank(self) -> int:
        """This one's place among them, from 0."""
        return self._ring.rank

    @property
    def members(self) -> tuple[int, ...]:
        """Each rank's place in the list of all workers, of which some may be missing."""
        return self._ring.members

    @property
    def newcomers(self) -> frozenset[int]:
        """The ranks that are new to the others; see newcomers.py."""
        return self._ring.newcomers if isinstance(self._ring, RenewableRing) else frozenset()

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

    def leave_out(self, answers: Sequence[Any], what: str) -> bool:
        """Have the others go on without newcomers that answer otherwise; see newcomers.py."""
        return isinstance(self._ring, RenewableRing) and leave_out(self._ring, answers, what)

    def trust_newcomers(self) -> None:
        """Take all for workers that fit; all of them call it."""
        if isinstance(self._ring, RenewableRing):
            self._ring.trust_newcomers()

    def part(self) -> Exception | None:
        """Meet once more before all workers end; the ring is of no use after that.

        Returns:
            what has ended one before it came here; None where none has failed. One that has left
            has not: it did not wait any longer for this worker. None, too, where this process has
            parted before.
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
        """Say that this worker has waited long enough to part; the ring is of no use after that."""
        self._ring.leave()

    def fail(self, reason: str) -> None:
        """Say that this worker fails before it has parted; the ring is of no use after that."""
        self._ring.abort(reason)


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

    @property
    def rank(self) -> int:
        """This one's place among them, from 0."""
        return self._replicas.first // self._replicas.local

    @property
    def members(self) -> tuple[int, ...]:
        """Each rank's place in the list of all workers: none is missing."""
        return tuple(range(self.count))

    @property
    def newcomers(self) -> frozenset[int]:
        """None: TensorFlow's cluster takes nobody in."""
        return frozenset()

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

    def leave_out(self, answers: Sequence[Any], what: str) -> bool:  # noqa: ARG002
        """Return False: TensorFlow's cluster has no newcomers."""
        return False

    def trust_newcomers(self) -> None:
        """Do nothing: there are none."""

    def part(self) -> Exception | None:
        """Meet once more before all workers end: one that leaves early tears the others' last call.

        That this meeting fails only says that somebody has left.
        """
        with suppress(tf.errors.OpError):
            self.gather(0)
        return None

    def leave(self) -> None:
        """Do nothing: TensorFlow's cluster has no words for it."""

    def fail(self, reason: str) -> None:
        """Do nothing: TensorFlow's cluster has no words for it."""

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
