"""A child of our own that looks at the peers: threads, sockets and name lookups end with it."""

from __future__ import annotations

import os
from collections.abc import Callable

from entrypoint.supervision.child_process import ChildProcess
from entrypoint.supervision.waiting import Ended, Waiter

Look = Callable[[], tuple[int, str]]
"""Returns an exit code, and the reason where it is not 0."""
GRACE_SECONDS = 1.0
"""Nothing is lost when a look, the gate or an installation is stopped."""


class HelperProcess:
    """A process that looks, and ends with what it has found."""

    def __init__(self, look: Look) -> None:
        """Start it."""
        reading, writing = os.pipe()

        def run() -> int:
            code, reason = look()
            os.write(writing, reason.encode(errors="backslashreplace"))
            return code

        self.child = ChildProcess(run)
        os.close(writing)
        self._reading = reading
        self._has_ended = False

    def read_reason(self) -> str:
        """Return the reason, once the process has ended."""
        with os.fdopen(self._reading, errors="replace", closefd=False) as file:
            return file.read()

    def warning(self) -> Ended | None:
        """Return why what it looks out for has to end, None while all is well."""
        if self._has_ended:
            return None
        code = self.child.poll()
        self._has_ended = code is not None
        return Ended(code, self.read_reason()) if code and code > 0 else None

    def dismiss(self) -> None:
        """End the process, whatever it is at."""
        if not self._has_ended:
            self.child.kill()
            self.child.wait()
        self.close()

    def close(self) -> None:
        """Give up the pipe."""
        os.close(self._reading)


def wait_for(look: Look, name: str) -> Ended:
    """Look in a process of its own, and wait until it has ended; `name` begins the reason."""
    helper = HelperProcess(look)
    ended = Waiter(helper.child, name, GRACE_SECONDS).wait()
    reason = helper.read_reason()
    helper.close()
    return Ended(ended.code, reason, ended.stopped) if reason else ended
