"""Sends bytes to the right and receives from the left at the same time, in the calling thread.

An operation is a `Flow`: an outgoing and an incoming stream, each a list of memory areas. It can
limit the bytes to send by those that have arrived. So pieces are forwarded, or added and forwarded,
while others are still on their way.
"""

import select
import socket
from collections.abc import Callable, Sequence

from cluster_trainer.collectives.ring.errors import Fate, OtherCall, OutOfStep, PeerLost, RingError
from cluster_trainer.collectives.ring.headers import HEADER

PIECE = 2**20
"""Bytes for one system call: few enough to be in the processor's cache when they are added."""
GRAIN = 2**16
"""The smallest number of bytes that are added at once, except at the end of a part: each addition
has an overhead."""
GRACE_SECONDS = 0.05
"""After a connection is closed, the time to wait for the record with the reason, which travels the
other way round the ring."""
UNIT = 8
"""Bytes; pieces are added in multiples of this, which the size of every number type divides."""

Span = Callable[[int, int, int], None]
"""Called with a part's number, and the range of its bytes."""


class Parts:
    """Memory areas as one stream, and a position in it."""

    def __init__(self, parts: Sequence[memoryview]) -> None:
        self._parts = parts
        self.index, self.within, self.position = 0, 0, 0
        self._skip_empty()

    @property
    def over(self) -> bool:
        """Whether the position is at the end."""
        return self.index == len(self._parts)

    def next(self, most: int) -> memoryview:
        """Return the next bytes of the current part, at most `most`."""
        return self._parts[self.index][self.within : self.within + most]

    def advance(self, count: int) -> bool:
        """Advance by `count` bytes of the current part; return whether the part is complete."""
        self.within += count
        self.position += count
        if self.within < len(self._parts[self.index]):
            return False
        self.index, self.within = self.index + 1, 0
        self._skip_empty()
        return True

    def _skip_empty(self) -> None:
        while not self.over and not len(self._parts[self.index]):
            self.index += 1


class Flow:
    """The two streams of one operation: a header each, then the content.

    Args:
        outgoing: the data for the right neighbour.
        incoming: the memory for the left neighbour's data.
        head: the header to send; empty: none.
        check: is called with the received header, HEADER.size bytes; None: none is received.
        free: how many bytes of content may be sent from the start; each received and handled byte
            of content frees another one. None: all of them.
        prepare: is called before bytes of a part are sent, in order, once for each byte.
        handle: is called after bytes of a part have arrived, in order, once for each byte.
    """

    def __init__(  # noqa: PLR0913
        self,
        outgoing: Sequence[memoryview] = (),
        incoming: Sequence[memoryview] = (),
        *,
        head: bytes = b"",
        check: Callable[[bytes], None] | None = None,
        free: int | None = None,
        prepare: Span | None = None,
        handle: Span | None = None,
    ) -> None:
        self._head_in = bytearray(HEADER.size if check else 0)
        self._out = Parts([memoryview(head), *outgoing])
        self._in = Parts([memoryview(self._head_in), *incoming])
        self._total = len(head) + sum(map(len, outgoing))
        self._free = self._total if free is None else len(head) + free
        self._check, self._prepare, self._handle = check, prepare, handle
        self._prepared, self._handled, self._handled_within = len(head), -len(self._head_in), 0

    def room(self) -> memoryview | None:
        """Return the memory for the next bytes; None once all have arrived."""
        return None if self._in.over else self._in.next(PIECE)

    def piece(self) -> tuple[memoryview, bool] | None:
        """Return the next bytes to send, and whether more can follow at once; None: nothing."""
        most = min(self._free + max(self._handled, 0), self._total) - self._out.position
        if most <= 0:
            return None
        piece = self._out.next(min(most, PIECE))
        end = self._out.position + len(piece)
        if self._prepare and end > self._prepared:
            last = self._out.within + len(piece)
            self._prepare(self._out.index - 1, last - (end - self._prepared), last)
            self._prepared = end
        return piece, len(piece) < most

    def sent(self, count: int) -> None:
        """Note that the first `count` bytes of the piece were sent."""
        self._out.advance(count)

    def arrived(self, count: int) -> None:
        """Note that the first `count` bytes of the room are filled."""
        part, end = self._in.index, self._in.within + count
        whole = self._in.advance(count)
        if not whole:
            end -= end % UNIT
            if end - self._handled_within < GRAIN:
                return
        if part == 0 and self._check:
            self._check(bytes(self._head_in))
        elif self._handle:
            self._handle(part - 1, self._handled_within, end)
        self._handled += end - self._handled_within
        self._handled_within = 0 if whole else end


class Links:
    """The connections to both neighbours, as far as they carry operations.

    Args:
        left: the socket from which this rank receives, not blocking.
        right: the socket to which it sends, not blocking.
        ranks: the ranks of the left and the right neighbour.
        fate: ends every wait after a failure.

    Attributes:
        doubt_seconds: how long to wait for another rank's verdict before the left neighbour is
            blamed for being in another call; see Ring.doubt.
        sent_bytes: the number of bytes sent so far.
    """

    def __init__(
        self,
        left: socket.socket,
        right: socket.socket,
        ranks: tuple[int, int],
        fate: Fate,
    ) -> None:
        self._left, self._right, self._fate = left, right, fate
        self.left_rank, self.right_rank = ranks
        self.doubt_seconds, self.sent_bytes = 0.0, 0
        self._polls = {wanted: self._poll(*wanted) for wanted in ((1, 0), (0, 1), (1, 1))}

    def exchange(self, flow: Flow) -> None:
        """Move both streams until both are complete.

        Raises:
            RingError: the first failure of the ring, on any rank.
        """
        while True:
            if ended := self._fate.ended():
                raise ended
            piece, room = flow.piece(), flow.room()
            if piece is None and room is None:
                return
            moved = piece is not None and self._send(flow, *piece)
            if room is not None:
                moved = self._receive(flow, room) or moved
            if not moved:
                self._wait(room is not None, piece is not None)

    def _send(self, flow: Flow, piece: memoryview, more: bool) -> bool:  # noqa: FBT001
        try:
            count = self._right.send(piece, socket.MSG_MORE if more else 0)
        except BlockingIOError:
            return False
        except OSError as problem:
            raise self._lost(self.right_rank, problem.strerror or str(problem)) from problem
        flow.sent(count)
        self.sent_bytes += count
        return True

    def _receive(self, flow: Flow, room: memoryview) -> bool:
        try:
            count = self._left.recv_into(room)
        except BlockingIOError:
            return False
        except OSError as problem:
            raise self._lost(self.left_rank, problem.strerror or str(problem)) from problem
        if not count:
            raise self._lost(self.left_rank, "closed")
        try:
            flow.arrived(count)
        except OutOfStep as problem:
            if isinstance(problem, OtherCall):
                self._fate.wait(self.doubt_seconds)
            raise self._fate.fail(problem) from problem
        return True

    def _lost(self, rank: int, how: str) -> RingError:
        told = self._fate.wait(GRACE_SECONDS) or self._fate.ended()
        return told or self._fate.fail(
            PeerLost(f"rank {rank} was lost: the connection to it: {how}", rank)
        )

    def _wait(self, receiving: bool, sending: bool) -> None:  # noqa: FBT001
        self._polls[receiving, sending].poll()

    def _poll(self, receiving: int, sending: int) -> select.poll:
        waiting = select.poll()
        waiting.register(self._fate, select.POLLIN)
        if receiving:
            waiting.register(self._left, select.POLLIN)
        if sending:
            waiting.register(self._right, select.POLLOUT)
        return waiting
