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
    Refused,
    RingError,
)
from cluster_trainer.collectives.ring.headers import LONGEST_WHAT, Header, Operation
from cluster_trainer.collectives.ring.memory import Memory
from cluster_trainer.collectives.ring.number_formats import AsBfloat16, AsTheyAre, Numbers
from cluster_trainer.collectives.ring.streams import Flow, Links
from cluster_trainer.collectives.ring.sums import (
    Headers,
    each_of,
    of_many,
    of_two,
    round_trip,
    rows_of,
)
from cluster_trainer.collectives.ring.traffic import Traffic

SMALL_BYTES = 2**18
"""If no rank sends more than this, every rank's numbers go to all ranks, in half the hops.

Above this size the sum in chunks, which sends less, is faster; measured with three and four ranks.
"""
SIZE = np.dtype(np.int64)


class Ring:
    """Workers in a circle, each connected to its neighbours.

    All ranks must call the same operations in the same order, each from one thread. `abort` and
    `leave` may be called from any thread. A failure ends the ring for good, on all ranks, with an
    error that names the failed rank, if there is one.

    Each operation takes `what`: its purpose in words for a person, at most 32 bytes. All ranks must
    give the same. Otherwise the operation fails with `OtherCall`, which names both purposes.

    The ring owns its sockets, and closes them. A ring of size 1 needs none.

    Args:
        rank: this process's rank, from 0.
        size: the number of ranks.
        generation: the number of this ring, the same on all ranks; a rank of another is refused.
        left: the connection to rank - 1, from which this rank receives.
        right: the connection to rank + 1, to which this rank sends.
        time_limit_seconds: the time after which a silent neighbour counts as lost. A neighbour is
            silent if its process stands still or the network fails, and not while it computes.
        first_sign_seconds: the time that a neighbour has until its first heartbeat, if this is
            longer than the limit above: it may create its own ring later than this rank.
        members: each rank's place in the list of all workers; None: all workers are in this ring.

    Attributes:
        operations: the number of operations that have begun.
        is_closed: whether this process has left the ring.
        traffic: the bytes that float32 sums have sent so far, and their duration.
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
        """The error that has ended the ring; None: it has not failed."""
        return self._fate.error

    def all_reduce(
        self, values: np.ndarray, *, wire: str | None = None, what: str = ""
    ) -> np.ndarray:
        """Return the sum over all ranks, [n], with the same bits on all of them.

        The result belongs to the caller: its memory is reused only when nothing refers to it any
        more.

        Args:
            values: [n] of one of DTYPES; they are not changed.
            wire: "bfloat16" sends float32 in half the bytes, rounded to 8 significant bits. None,
                or the type's own name, sends the values unchanged. All ranks must give the same.
            what: the purpose of the operation; see the class.

        Raises:
            ValueError: this rank's arguments are not acceptable.
            RingError: the ring has failed, and cannot be used any more.
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
        operation waits for them. The values must not change before the sum is complete.

        Raises:
            ValueError: this rank's arguments are not acceptable.
            RingError: this ring was closed.
        """
        _check_sum(values, None if wire == values.dtype.name else wire)
        if self.size == 1:
            return over(self._copy(values))
        if self.is_closed:
            raise RingError(CLOSED)
        return self._background.submit(lambda: self.all_reduce(values, wire=wire, what=what))

    def all_gather(self, value: bytes | np.ndarray, *, what: str = "") -> list[bytes]:
        """Return the bytes of every rank, in rank order; their lengths may differ.

        Raises:
            RingError: the ring has failed.
        """
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
        """Return the content that the rank `holder` gives; the other ranks give None.

        It travels round the ring in pieces, so that all ranks have it at about the same time.

        Raises:
            ValueError: this rank's arguments are not acceptable.
            RingError: the ring has failed.
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

    def refuse(self, why: str) -> None:
        """End the ring on all ranks, whose program cannot train: they raise `Refused`.

        Any thread may call this.
        """
        self._fate.fail(Refused(f"refused by rank {self.rank}: {why}", self.rank))

    def leave(self) -> None:
        """End the ring on all ranks without waiting for them; they raise `PeerLeft`.

        Any thread may call this.
        """
        text = f"rank {self.rank} has ended, and waited no longer for the others"
        self._fate.fail(PeerLeft(text, self.rank))

    def doubt(self, seconds: float) -> None:
        """Let this rank wait for another rank's verdict if its left neighbour is in another call.

        In a circle, a rank that differs is never the only one that sees a difference: the next rank
        sees it, too. After `seconds` without a verdict, this rank blames its neighbour.
        """
        if self._sockets:
            self._links.doubt_seconds = seconds

    def close(self) -> None:
        """Leave the ring, report this to the others, and close the sockets and the thread.

        Call it in the thread that calls the operations. A run that ends well calls `barrier` first:
        after it, no rank needs this one any more.
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
        """Close a forked process's copies of the connections, which its parent keeps using.

        Nothing is sent, and the ring cannot be used in this process.
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
    """Let the kernel end the left connection if this rank's heartbeats are not acknowledged.

    That happens if the network works in one direction only. The right connection needs another
    treatment: a neighbour that computes may not read it for a long time.
    """
    if left.family in (socket.AF_INET, socket.AF_INET6):
        left.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
