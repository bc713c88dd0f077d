"""Makes a call before a process ends, with a time limit, because it may never return."""

import threading
from collections.abc import Callable


class LastCall:
    """A thread for the last call of a process.

    It is started early, because since Python 3.12 no thread can be started at the interpreter's
    exit. A forked process has no such thread, and makes no call.
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
        """Make a call, once; return when it is done, or after `seconds`."""
        self._call = call
        self._wanted.set()
        self._thread.join(seconds)

    def _wait(self) -> None:
        self._wanted.wait()
        self._call()
