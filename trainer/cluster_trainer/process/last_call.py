"""A call that a process makes before it ends, and that may never return."""

import threading
from collections.abc import Callable


class LastCall:
    """A thread that is there from the beginning: since Python 3.12 none can be started at the end.

    A process that was forked off has no such thread, and makes no call.
    """

    def __init__(self) -> None:
        self._call: Callable[[], object] = lambda: None
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="last-call", daemon=True)

    def begin(self) -> "LastCall":
        """Let the thread wait for the call; return this object."""
        self._thread.start()
        return self

    def make(self, call: Callable[[], object], seconds: float) -> None:
        """Make a call; return when it has, or after so long. Once."""
        self._call = call
        self._wanted.set()
        self._thread.join(seconds)

    def _wait(self) -> None:
        self._wanted.wait()
        self._call()
