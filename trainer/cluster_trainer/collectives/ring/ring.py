"""The ring of workers: all of them call the same operations in the same order."""

import io
import itertools
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Self

import numpy as np

from cluster_trainer.collectives.ring.agreeing import DTYPES, LONGEST, WIRES, agreed
from cluster_trainer.collectives.ring.background import Background, over
from cluster_trainer.collectives.ring.control import Control, Membership
from cluster_trainer.collectives.ring.errors import (
    CLOSED,
    Aborted,
    Fate,
    OutOfStep,
    PeerLeft,
    RingError,
)
from cluster_trainer.collectives.ring.memory import Memory
from cluster_trainer.collectives.ring.streams import Flow, Links
from cluster_trainer.collectives.ring.sums import (
    AsBfloat16,
    AsTheyAre,
    Headers,
    Numbers,
    each_of,
    of_many,
    of_two,
    round_trip,
    rows_of,
)
from cluster_trainer.collectives.ring.traffic import Traffic
from cluster_trainer.collectives.ring.wire import LONGEST_WHAT, Header, Operation

SMALL_BYTES = 2**18
"""If no rank sends more than this, a sum takes half the hops, and every rank's numbers go to all.

Measured with three and four ranks. The sum in chunks sends less, and is faster above this size.
"""
SIZE = np.dtype(np.int64)


class Ring:
    """Workers in a circle, each connected to its neighbours.

    One thread calls, on all ranks the same in the same order; `abort` may come from any. Whatever
    fails ends the ring for good, on all ranks, with an error that names the rank that failed, if
    one did.

    Each operation takes `what`: what it is for, in words for a person, 32 bytes at most. All ranks
    have to give the same, or it fails with `OtherCall`, which says what each of the two is at.

    Size 1 needs no sockets. The sockets belong to the ring, which closes them.

    Args:
        rank: this process's number, from 0.
        size: how many there are.
        generation: the number of this group, the same on all; a rank of another group is refused.
        left: the connection to rank - 1, from which this one receives.
        right: the connection to rank + 1, to which this one sends.
        time_limit_seconds: after which a silent neighbour is lost. It is silent when its process
            stands still or the network is gone, not when it computes.
        first_sign_seconds: how long a neighbour may take to make its own ring after this one, if
            that is longer; the limit above holds from its first heartbeat on.
        members: each rank's place in the list of all workers, where not all are in this ring; None:
            all are.

    Attributes:
        operations: how many operations have begun.
        is_closed: whether this process has left the ring.
        traffic: how much the float32 sums so far have sent, and how long they took.
    """

    def __init__(  # noqa: PLR0913
        self,
        rank: int,
        size: int,
        generation: int,
        left: socket.socket | None = None,
        right: socket.socket | None = None,
        *,
        time_limit_seconds: float = 10.0,
        first_sign_seconds: float = 60.0,
        members: Sequence[int] | None = None,
    ) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} of a ring of {size}: ranks are 0 to {size - 1}")
        self.rank, self.size, self.generation = rank, size, generation
        self._place = Membership(rank, size, generation)
        self.members = tuple(range(size) if members is None else members)
        self._memory, self._fate = Memory(), Fate()
        self.operations, self._numbers = 0, itertools.count(1)
        self._calling, self.is_closed = threading.Lock(), False
        self.traffic = Traffic()
        self._background = Background("ring-sums")
        self._sockets: list[socket.socket] = []
        if size > 1:
            if left is None or right is None:
                raise ValueError(f"a ring of {size} needs two sockets: left and right")
            self._sockets = [left, right]
            for connection in self._sockets:
                _prepare(connection)
            _give_up_after(left, time_limit_seconds)
            ranks = self._place.left, self._place.right
            self._links = Links(left, right, ranks, self._fate)
            limits = max(first_sign_seconds, time_limit_seconds), time_limit_seconds
            self._control = Control(self._place, left, right, limits, self._fate)

    @property
    def error(self) -> RingError | None:
        """Why the ring has ended; None if it has not."""
        return self._fate.error

    def all_reduce(
        self, values: np.ndarray, *, wire: str | None = None, what: str = ""
    ) -> np.ndarray:
        """Return the sum over all ranks, with the same bits on all of them.

        The result belongs to the caller: its memory is reused only when nothing refers to it any
        more.

        Args:
            values: [n] of one of DTYPES; read, never written to.
            wire: "bfloat16" halves what is sent of float32, and rounds it to 8 bits. None, or the
                type's own name: unchanged. All ranks must ask for the same.
            what: see the class.

        Raises:
            ValueError: if this rank's arguments are of no use.
            RingError: if the ring has failed; it is of no use from then on.
        """
        wire = None if wire == values.dtype.name else wire
        _check_sum(values, wire)
        if self.size == 1:
            return self._copy(values)
        detail = DTYPES.index(values.dtype) * len(WIRES) + WIRES.index(wire)
        with (
            self._operating(Operation.ALL_REDUCE, detail, values.size, what) as headers,
            np.errstate(all="ignore"),
        ):
            way = AsBfloat16 if wire else AsTheyAre
            numbers = way(np.ascontiguousarray(values), self._memory)
            return (self._counted if values.dtype == np.float32 else self._sum)(numbers, headers)

    def begin_all_reduce(
        self, values: np.ndarray, *, wire: str | None = None, what: str = ""
    ) -> Future[np.ndarray]:
        """Begin a sum like `all_reduce`, and return a future of it at once.

        A thread of the ring computes such sums in the order in which they were begun. Any other
        operation waits for them. The values must not change until then.

        Raises:
            ValueError: if this rank's arguments are of no use.
            RingError: if this ring was closed.
        """
        _check_sum(values, None if wire == values.dtype.name else wire)
        if self.size == 1:
            return over(self._copy(values))
        if self.is_closed:
            raise RingError(CLOSED)
        return self._background.submit(lambda: self.all_reduce(values, wire=wire, what=what))

    def all_gather(self, value: bytes | np.ndarray, *, what: str = "") -> list[bytes]:
        """Return the bytes of every rank, of any lengths, in rank order."""
        mine = value.tobytes() if isinstance(value, np.ndarray) else bytes(value)
        if self.size == 1:
            return [mine]
        sizes = np.zeros(self.size, SIZE)
        sizes[self.rank] = len(mine)
        with self._operating(Operation.SIZES, 0, SIZE.itemsize, what) as headers:
            self._links.exchange(round_trip(each_of(sizes), self.rank, headers))
            self._check_lengths(sizes.tolist())
        with self._operating(Operation.ALL_GATHER, 0, int(sizes.sum()), what) as headers:
            return self._gathered(mine, sizes.tolist(), headers)

    def broadcast(self, value: bytes | None, holder: int, *, what: str = "") -> bytes:
        """Return the content that the rank `holder` gives; the others give None.

        It travels round the ring in pieces, so that all ranks have it at about the same time.

        Raises:
            ValueError: if this rank's arguments are of no use.
            RingError: if the ring has failed.
        """
        if not 0 <= holder < self.size:
            raise ValueError(f"holder {holder}: ranks are 0 to {self.size - 1}")
        if self.rank == holder and value is None:
            raise ValueError(f"rank {holder} holds the content of this broadcast, and gave None")
        held = bytes(value or b"")
        if self.size == 1:
            return held
        with self._operating(Operation.BROADCAST, holder, len(held), what) as headers:
            if self.rank == holder:
                self._links.exchange(Flow([memoryview(held)], head=headers["head"]))
                return held
            return self._received(holder, headers["head"])

    def barrier(self, *, what: str = "") -> None:
        """Return when all ranks have called this."""
        if self.size == 1:
            return
        tokens = np.full(self.size, -1, SIZE)
        with self._operating(Operation.BARRIER, 0, SIZE.itemsize, what) as headers:
            tokens[self.rank] = self.operations
            self._links.exchange(round_trip(each_of(tokens), self.rank, headers))
            for index, token in enumerate(tokens.tolist()):
                if token != self.operations:
                    text = f"rank {index} came to the barrier with {token}, not {self.operations}"
                    raise self._fate.fail(OutOfStep(text, index))

    def abort(self, reason: str) -> None:
        """End the ring on all ranks: waiting and later calls raise `Aborted`.

        Any thread may call this.
        """
        self._fate.fail(Aborted(f"aborted by rank {self.rank}: {reason}", self.rank))

    def leave(self) -> None:
        """End the ring on all ranks without waiting for them: they get `PeerLeft`.

        Any thread may call this.
        """
        text = f"rank {self.rank} has ended, and waited no longer for the others"
        self._fate.fail(PeerLeft(text, self.rank))

    def doubt(self, seconds: float) -> None:
        """Make this rank doubt itself, not its left neighbour, if the two differ.

        It waits so long for another rank's verdict: in a circle, a rank that differs is never the
        only one that sees a difference.
        """
        if self._sockets:
            self._links.doubt_seconds = seconds

    def close(self) -> None:
        """Leave the ring, and close its sockets and its thread. Call it in the calling thread.

        The others are told. The last call of a run that ends well is `barrier`: after it, no rank
        needs this one any more.
        """
        if self.is_closed:
            return
        self.is_closed = True
        if self._sockets:
            self._control.stop()
        for connection in self._sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._background.end()  # before another file can have a socket's number
        for connection in self._sockets:
            connection.close()
        self._fate.release()

    def forget(self) -> None:
        """Close this process's copies of the connections, which another process keeps using.

        For a forked process: nothing is sent, and the ring cannot be used here.
        """
        self.is_closed = True
        for connection in self._sockets:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _operating(self, kind: Operation, detail: int, length: int, what: str) -> Iterator[Headers]:
        if self.is_closed:
            raise RingError(CLOSED)
        if len(what.encode()) > LONGEST_WHAT:
            raise ValueError(f"what: {what!r} is too long; accepted: {LONGEST_WHAT} bytes")
        self._background.wait()
        if not self._calling.acquire(blocking=False):
            raise RuntimeError("another thread is within an operation of this ring: one may call")
        try:
            self.operations = next(self._numbers)
            self._control.begin(self.operations)
            place = self.generation, self.operations, self.rank, self.size
            header = Header(*place, kind, detail, length, what)
            yield {"head": header.pack(), "check": partial(agreed, header)}
        except RingError:
            raise
        except BaseException as problem:
            self.abort(f"{type(problem).__name__} within an operation: {problem}")
            raise
        finally:
            self._calling.release()

    def _copy(self, values: np.ndarray) -> np.ndarray:
        total = self._memory.take(values.size, values.dtype)
        np.copyto(total, values)
        return total

    def _counted(self, numbers: Numbers, headers: Headers) -> np.ndarray:
        began, sent = time.monotonic(), self._links.sent_bytes
        try:
            return self._sum(numbers, headers)
        finally:
            more = Traffic(self._links.sent_bytes - sent, time.monotonic() - began, 1)
            self.traffic = self.traffic.and_then(more)

    def _sum(self, numbers: Numbers, headers: Headers) -> np.ndarray:
        size, rank = self.size, self.rank
        if size == 2:  # noqa: PLR2004 -- a pair
            self._links.exchange(of_two(numbers, rank, headers))
        elif numbers.total.nbytes * (size - 1) > SMALL_BYTES:
            self._links.exchange(of_many(numbers, rank, size, headers))
        else:
            rows = rows_of(numbers, rank, size)
            self._links.exchange(round_trip(each_of(rows), rank, headers))
            return numbers.over(rows)
        return numbers.total

    def _gathered(self, mine: bytes, lengths: list[int], headers: Headers) -> list[bytes]:
        lengths[self.rank] = 0
        buffers = [io.BytesIO(bytes(length)) for length in lengths]
        places = [buffer.getbuffer() for buffer in buffers]
        places[self.rank] = memoryview(mine)
        self._links.exchange(round_trip(places, self.rank, headers))
        found = [_content_of(*each) for each in zip(buffers, places, strict=True)]
        found[self.rank] = mine
        return found

    def _received(self, holder: int, head: bytes) -> bytes:
        """Receive a broadcast from the left, and forward it unless the right one is the holder."""
        found: list[Header] = []
        mine = Header.unpack(head)

        def check(received: bytes) -> None:
            found.append(agreed(mine, received, any_length=True))

        self._links.exchange(Flow(check=check))
        length = found[0].length
        buffer = io.BytesIO(bytes(length))
        view = buffer.getbuffer()
        if self._place.right == holder:
            self._links.exchange(Flow(incoming=[view]))
        else:
            onward = replace(mine, length=length).pack()
            self._links.exchange(Flow([view], [view], head=onward, free=0))
        return _content_of(buffer, view)

    def _check_lengths(self, lengths: list[int]) -> None:
        for index, length in enumerate(lengths):
            if not 0 <= length <= LONGEST:
                text = f"rank {index} gathers {length} bytes: 0 to {LONGEST:,} are possible"
                raise self._fate.fail(OutOfStep(text, index))


def _content_of(buffer: io.BytesIO, view: memoryview) -> bytes:
    """Return the buffer's bytes; they are not copied if no view holds them."""
    view.release()
    return buffer.getvalue()


def _check_sum(values: np.ndarray, wire: str | None) -> None:
    if values.ndim != 1 or values.dtype not in DTYPES:
        names = ", ".join(dtype.name for dtype in DTYPES)
        got = f"{values.dtype} {list(values.shape)}"
        raise ValueError(f"a sum of {got}: accepted are [n] of {names}")
    if wire not in WIRES or (wire == "bfloat16" and values.dtype != np.float32):
        raise ValueError(f"wire {wire!r} for {values.dtype}: its own, or 'bfloat16' for float32")


def _prepare(connection: socket.socket) -> None:
    connection.settimeout(0)
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _give_up_after(left: socket.socket, seconds: float) -> None:
    """Let the kernel end a connection on which this rank's heartbeats are not acknowledged.

    Then the network works in one direction only: the right neighbour's heartbeats still arrive.
    This does not apply to the connection to the right, because a neighbour that computes does not
    read it for a long time.
    """
    if left.family in (socket.AF_INET, socket.AF_INET6):
        left.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
