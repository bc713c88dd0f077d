"""What one worker knows, told to all: numbers, and whole files.

Both go the way of the gradients, so that they need no port, no address and no secret of their own.
"""

from contextlib import suppress

import numpy as np
import tensorflow as tf

WORD = np.dtype(np.int64)
CHUNK_WORDS = 2**19
CHUNK_BYTES = CHUNK_WORDS * WORD.itemsize


class Exchange:
    """Every worker calls the same methods in the same order."""

    def __init__(self, strategy: tf.distribute.Strategy, num_workers: int) -> None:
        self._strategy, self._num_workers = strategy, num_workers
        self._local_replicas = strategy.num_replicas_in_sync // num_workers

    def gather(self, number: int) -> list[int]:
        """Return every worker's number, in the order of their ranks."""
        numbers = self._gathered(tf.constant([number], tf.int64)).numpy()
        return [int(value) for value in numbers[:: self._local_replicas]]

    def broadcast(self, content: bytes | None, holder: int) -> bytes:
        """Return the content that the worker of rank `holder` gives; the others give None."""
        size = self.gather(len(content or b""))[holder]
        if self._num_workers == 1:
            return content or b""
        replica = tf.constant(holder * self._local_replicas, tf.int32)
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
    def _gathered(self, numbers: tf.Tensor) -> tf.Tensor:
        def gather() -> tf.Tensor:
            # An op of the replica's own, which has a device; the argument has none.
            own = tf.identity(numbers)
            return tf.distribute.get_replica_context().all_gather(own, axis=0)

        return self._first(self._strategy.run(gather))

    @tf.function
    def _from(self, words: tf.Tensor, replica: tf.Tensor) -> tf.Tensor:
        """Return the words of one replica, int64 [CHUNK_WORDS].

        As a sum to which all others add 0: whole numbers, so that every bit arrives.
        """

        def add() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            mine = tf.equal(tf.cast(context.replica_id_in_sync_group, tf.int32), replica)
            return context.all_reduce("SUM", words * tf.cast(mine, tf.int64))

        return self._first(self._strategy.run(add))

    def _first(self, values: tf.distribute.DistributedValues) -> tf.Tensor:
        return self._strategy.experimental_local_results(values)[0]


def _words(content: bytes | None, first: int) -> np.ndarray:
    """Return the part of the content that begins at byte `first`, filled up with zeros."""
    part = (content or b"")[first : first + CHUNK_BYTES]
    return np.frombuffer(part.ljust(CHUNK_BYTES, b"\0"), WORD)
