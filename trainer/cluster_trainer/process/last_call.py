"""A call that a process makes before it ends, and that may never return."""

import threading
from collections.abc import Callable


class LastCall:
    """A thread that exists from the beginning: since Python 3.12 none can be started at the end.

    A forked process has no such thread, and makes no call.
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
        """Make a call, once; return when it is done, or after so many seconds."""
        self._call = call
        self._wanted.set()
        self._thread.join(seconds)

    def _wait(self) -> None:
        self._wanted.wait()
        self._call()
