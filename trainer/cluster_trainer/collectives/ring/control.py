"""Sends heartbeats and reports failures in a thread, while the calling thread computes or waits.

Operations use each connection from left to right only. This thread uses the other direction: every
rank sends small records to its left neighbour, and watches its right one. So each rank is watched
by one other rank. The process that trains sends the heartbeats, and not a helper: if it stands
still (SIGSTOP, a paused container, a machine without power), they stop.

A rank that detects a failure reports it to the left, and every rank forwards the report. So within
milliseconds all ranks but the lost one know of it.
"""

import select
import socket
import threading
import time
from dataclasses import dataclass

from cluster_trainer.collectives.ring.errors import (
    Aborted,
    Fate,
    OtherCall,
    OutOfStep,
    PeerLeft,
    PeerLost,
    Refused,
    RingError,
)
from cluster_trainer.collectives.ring.headers import Record, Word, records

NOBODY = 2**16 - 1
BEATS = 10
"""The number of heartbeats within the time limit."""
END_SECONDS = 2.0
ERRORS: dict[Word, type[RingError]] = {  # the more specific ones first
    Word.OTHER_CALL: OtherCall,
    Word.LEFT_BEFORE: PeerLeft,
    Word.LOST: PeerLost,
    Word.OUT_OF_STEP: OutOfStep,
    Word.ABORTED: Aborted,
    Word.REFUSED: Refused,
}


@dataclass(frozen=True)
class Membership:
    """The place of this process in a ring."""

    rank: int
    size: int
    generation: int

    @property
    def left(self) -> int:
        """The rank from which this one receives."""
        return (self.rank - 1) % self.size

    @property
    def right(self) -> int:
        """The rank to which this one sends."""
        return (self.rank + 1) % self.size


class Control:
    """The thread. It ends with the ring: after the first failure, or `stop`.

    Args:
        place: this rank.
        left: the socket to which records are sent.
        right: the socket from which they come.
        limits_seconds: how long the right neighbour may be silent: before its first heartbeat, and
            afterwards.
        fate: receives failures.
    """

    def __init__(
        self,
        place: Membership,
        left: socket.socket,
        right: socket.socket,
        limits_seconds: tuple[float, float],
        fate: Fate,
    ) -> None:
        self._place, self._left, self._right = place, left, right
        self._fate, self._limits, self._was_heard = fate, limits_seconds, False
        self._beat = limits_seconds[1] / BEATS
        self._operation = 0
        self._last_of_right: int | None = None
        self._silent, self._looked, self._said = 0.0, time.monotonic(), 0.0
        self._unread, self._unsent = bytearray(), bytearray()
        self._saying = threading.RLock()
        self._watching = True
        fate.tell = lambda error: self._say(_record_of(error, place))
        self._waiting = select.poll()
        self._waiting.register(fate, select.POLLIN)
        self._waiting.register(right, select.POLLIN)
        self._thread = threading.Thread(target=self._run, name="ring-control", daemon=True)
        self._thread.start()

    def begin(self, operation: int) -> None:
        """Note that the calling thread begins this operation."""
        self._operation = operation
        self._compare_with_right()

    def stop(self) -> None:
        """Send the last message and end the thread."""
        self._fate.close()
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        try:
            self._live()
            while not (self._fate.error or self._fate.closing):
                self._waiting.poll(self._beat * 1000)
                self._read()
                self._judge()
                self._live()
        except Exception as problem:  # noqa: BLE001 -- whatever it is, the caller has to hear of it
            self._fate.fail(RingError(f"the ring's thread ended: {problem!r}", self._place.rank))
        if self._fate.error is None:
            place = self._place
            self._say(Record(Word.LEFT, place.rank, place.rank, place.generation, self._operation))

    def _read(self) -> None:
        while self._watching:
            try:
                content = self._right.recv(4096)
            except BlockingIOError:
                return None
            except OSError as problem:
                return self._closed(problem.strerror or str(problem))
            if not content:
                return self._closed("closed, since its process has ended or has given up the ring")
            self._silent, self._was_heard = 0.0, True
            self._unread += content
            try:
                for record in records(self._unread):
                    self._heard(record)
            except ValueError as problem:
                rank = self._place.right
                self._fate.fail(OutOfStep(f"rank {rank} sent beside the data: {problem}", rank))
                return None
        return None

    def _closed(self, how: str) -> None:
        self._watching = False
        self._waiting.unregister(self._right)
        if self._last_of_right is None:
            rank = self._place.right
            self._fate.fail(PeerLost(f"rank {rank} was lost: the connection to it: {how}", rank))

    def _heard(self, record: Record) -> None:
        if record.generation != self._place.generation:
            self._fate.fail(
                OutOfStep(
                    f"rank {self._place.right} is of generation {record.generation}, "
                    f"this one of {self._place.generation}",
                    self._place.right,
                )
            )
        elif record.word is Word.LEFT:
            self._last_of_right = record.number
            self._compare_with_right()
        elif record.word is not Word.ALIVE:
            self._fate.fail(_error_of(record))

    def _compare_with_right(self) -> None:
        last, rank = self._last_of_right, self._place.right
        if last is not None and self._operation > last:
            text = f"rank {rank} left after operation {last}, this is operation {self._operation}"
            self._fate.fail(PeerLeft(text, rank))

    def _judge(self) -> None:
        # Time in which this thread itself was paused does not count against another rank.
        now = time.monotonic()
        self._silent += min(now - self._looked, 2 * self._beat)
        self._looked = now
        limit = self._limits[self._was_heard]
        if self._silent > limit and self._watching:
            rank = self._place.right
            text = f"rank {rank} was lost: no heartbeat for {limit:g} s"
            self._fate.fail(PeerLost(text, rank))

    def _live(self) -> None:
        now = time.monotonic()
        if now - self._said >= 0.9 * self._beat:
            self._said = now
            place = self._place
            self._say(Record(Word.ALIVE, place.rank, place.rank, place.generation))

    def _say(self, record: Record) -> None:
        with self._saying:
            self._unsent += record.pack()
            try:
                del self._unsent[: self._left.send(self._unsent)]
            except BlockingIOError:
                pass  # the left neighbour does not read now; the rank that watches it will judge
            except OSError:
                self._unsent.clear()  # the calling thread sees the result


def _error_of(record: Record) -> RingError:
    about = None if record.about == NOBODY else record.about
    text = record.text
    if record.origin != record.about:
        text += f" (seen by rank {record.origin})"
    error = ERRORS[record.word](text, about)
    error.record = record
    return error


def _record_of(error: RingError, place: Membership) -> Record:
    if error.record:
        return error.record
    words = [word for word, kind in ERRORS.items() if isinstance(error, kind)]
    about = NOBODY if error.rank is None else error.rank
    word = words[0] if words else Word.ABORTED
    return Record(word, place.rank, about, place.generation, text=str(error))
