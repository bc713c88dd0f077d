"""The errors of the ring, and the object that keeps its first failure."""

import os
import select
import threading
from collections.abc import Callable

from cluster_trainer.collectives.ring.headers import Record
from cluster_trainer.private.passed_on import PassedOn

CLOSED = "this ring was closed"


class RingError(PassedOn):
    """The ring cannot be used any more: close it, and form another.

    Attributes:
        rank: the rank that has failed, as far as is known; None: no rank is to blame.
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank
        self.record: Record | None = None  # the report of another rank; None: this rank found it


class PeerLost(RingError):  # noqa: N818 -- what has happened, as in the errors of sockets
    """A worker has died, is silent, or has left before this operation."""


class PeerLeft(PeerLost):
    """A worker has left before this operation, without a failure."""


class PeerUnfit(PeerLost):
    """A newcomer differs from the others, which can continue without it."""


class OutOfStep(RingError):  # noqa: N818
    """A worker is at another operation, or sends invalid data."""


class OtherCall(OutOfStep):
    """A worker is in a different call of its program: the programs differ."""


class Aborted(RingError):  # noqa: N818
    """`abort` was called, here or on another worker."""


class Refused(RingError):  # noqa: N818
    """`refuse` was called, here or on another worker: the program cannot train on several."""


class Fate:
    """Tells whether the ring has failed or closed; the first failure wakes all waiting threads.

    It is thread-safe. Its file descriptor can be polled: it is readable after the first failure.

    Attributes:
        error: the first failure; None: there is none.
        closing: whether this rank leaves.
        tell: is called with the first failure, in the thread that has seen it.
    """

    def __init__(self) -> None:
        self.error: RingError | None = None
        self.closing = False
        self.tell: Callable[[RingError], None] = lambda _: None
        self._lock = threading.RLock()  # a signal handler may call abort within it
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._released = False

    def fileno(self) -> int:
        """Return the file descriptor for poll()."""
        return self._event

    def fail(self, error: RingError) -> RingError:
        """Keep this error if it is the first; return the first error.

        `tell` is called before `error` is set, because this process may end as soon as it is set.
        """
        with self._lock:
            if self.error is None:
                self.tell(error)
                self.error = error
                self._wake()
            return self.error

    def close(self) -> None:
        """Wake the control thread, so that it ends."""
        with self._lock:
            self.closing = True
            self._wake()

    def ended(self) -> RingError | None:
        """Return why nothing may be sent or received any more; None: the ring works.

        It is the first failure, or the fact that another thread of this rank has left the ring.
        """
        return self.error or (RingError(CLOSED) if self.closing else None)

    def wait(self, seconds: float) -> RingError | None:
        """Return the first failure, after waiting for it at most `seconds`; None: there is none."""
        waiting = select.poll()
        waiting.register(self._event, select.POLLIN)
        waiting.poll(seconds * 1000)
        return self.error

    def release(self) -> None:
        """Close the file descriptor; nothing may poll it any more."""
        with self._lock:
            if not self._released:
                os.close(self._event)
            self._released = True

    def _wake(self) -> None:
        if not self._released:
            os.eventfd_write(self._event, 1)
