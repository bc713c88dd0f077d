"""A ring of two: this process with TensorFlow, and a peer thread that calls the ring itself."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.ring import Ring

SECONDS = 60.0


class Peer:
    """Rank 1 of 2.

    Attributes:
        mine: the ring of rank 0, this process.
        ring: the ring of rank 1, the peer.
    """

    def __init__(self) -> None:
        one, two = socket.socketpair(), socket.socketpair()  # a rank's right link is the first end
        self.mine = RenewableRing(lambda: Ring(0, 2, 1, two[1], one[0]))
        self.ring = RenewableRing(lambda: Ring(1, 2, 1, one[1], two[0]))
        self._pool = ThreadPoolExecutor(1)

    def calls(self, *calls: Callable[[RenewableRing], Any]) -> Future[list[Any]]:
        """Make the peer's calls in order, while rank 0 makes its own."""
        return self._pool.submit(lambda: [call(self.ring) for call in calls])

    def end(self) -> None:
        self.ring.abort("the test has ended")
        self._pool.shutdown()
        self.ring.close()
        self.mine.close()


@contextmanager
def ring_of_two() -> Iterator[Peer]:
    """Put this process into a ring with a peer."""
    made = Peer()
    process_ring.use(made.mine)
    try:
        yield made
    finally:
        process_ring.use(None)
        made.end()
