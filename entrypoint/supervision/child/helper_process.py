"""Work in a child process of our own: its threads, sockets and name lookups end with it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

from entrypoint.errors import EXIT_PEER_LOST, how_it_ended, shortened
from entrypoint.log import Log
from entrypoint.supervision.child.child_process import NOTICES, ChildProcess, take_stop
from entrypoint.supervision.child.waiting import Ended, Waiter, stopped_by

Work = Callable[[], tuple[int, str]]
"""Returns an exit code and a text: with 0 what was found out, else the reason."""

GRACE_SECONDS = 1.0
"""Nothing is lost when the gate, a check or an installation is stopped."""
LONGEST_REASON = 16_384
"""Characters; other workers and strangers have a say in some reasons."""
PAUSES_SECONDS = (2.0, 4.0, 8.0, 16.0, 32.0)
"""Before work that keeps failing is retried."""
EXIT_FAILED = 1


class HelperProcess:
    """A process that does some work, and ends with the code that it returned.

    The text comes back in a file in memory. A pipe would hold up a writer with much to say, for
    as long as nobody reads; and here nobody does before the process has ended.
    """

    def __init__(self, work: Work) -> None:
        self._file = os.memfd_create("text")

        def run() -> int:
            code, text = work()
            shown = shortened(text, LONGEST_REASON) if code else text
            os.pwrite(self._file, shown.encode(errors="backslashreplace"), 0)
            return code

        try:
            self.child = ChildProcess(run, ignores=NOTICES)
        except OSError:
            self.close()
            raise
        self._has_ended = False

    def read_text(self) -> str:
        """Return the text, once the process has ended."""
        size = os.fstat(self._file).st_size
        return os.pread(self._file, size, 0).decode(errors="replace")

    def news(self) -> Ended | None:
        """Return how it has ended, the first time that this is asked after its end."""
        status = None if self._has_ended else self.child.poll()
        if status is None:
            return None
        self._has_ended = True
        return Ended(status, self.read_text() or f"the process {how_it_ended(status)}")

    def end(self) -> None:
        """End the process if it still runs, and give up the file."""
        if not self._has_ended:
            self.child.kill()
            self.child.wait()
        self.close()

    def close(self) -> None:
        """Give up the file of a process that has ended."""
        os.close(self._file)


def run_helper(work: Work, name: str, log: Log) -> Ended:
    """Do the work in a process of its own and return how it ended; `name` begins the reason.

    A stop wins over work that has succeeded meanwhile: what would come next must not start.
    """
    try:
        helper = HelperProcess(work)
    except OSError as error:  # a limit of processes or memory, which may be over soon
        return Ended(EXIT_PEER_LOST, f"{name} cannot be started: {error.strerror}")
    waiter = Waiter(helper.child, name, GRACE_SECONDS, log)
    ended = waiter.wait()
    text = helper.read_text()
    helper.close()
    if ended.code:
        return ended if ended.stopped else replace(ended, reason=text or ended.reason)
    stop = waiter.stop or take_stop()
    return stopped_by(stop, f"{name} was done") if stop else replace(ended, found=text)


def retried(work: Work, name: str, log: Log) -> Work:
    """Return the work as it is done where an exception is no verdict: retried after a pause."""

    def run() -> tuple[int, str]:
        pauses = list(PAUSES_SECONDS)
        while True:
            try:
                return work()
            except Exception as error:  # noqa: BLE001 -- whatever it is, it must not end a command
                if not pauses:
                    return EXIT_FAILED, f"{name} failed ({error!r})"
                pause = pauses.pop(0)
                log.warning(f"{name} failed ({error!r}); trying again in {pause:g} s")
                time.sleep(pause)

    return run
