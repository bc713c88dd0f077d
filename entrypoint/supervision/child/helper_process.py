"""Runs work in a child process: its threads, sockets and name look-ups end with it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

from entrypoint.errors import EXIT_PEER_LOST, how_it_ended, shortened
from entrypoint.log import Log
from entrypoint.supervision.child.child_process import NOTICES, ChildProcess, take_stop
from entrypoint.supervision.child.ended import Ended, stopped_by
from entrypoint.supervision.child.waiter import Waiter

Work = Callable[[], tuple[int, str]]
"""Returns an exit code and a text: the result for code 0, otherwise the reason."""

GRACE_SECONDS = 1.0
"""Stopping the gate, a check or an installation loses nothing."""
LONGEST_REASON = 16_384
"""The number of characters of a reason; other workers and strangers influence some reasons."""
PAUSES_SECONDS = (2.0, 4.0, 8.0, 16.0, 32.0)
"""The pauses before failing work is retried."""
EXIT_FAILED = 1


class HelperProcess:
    """A process that does some work, and exits with the code that the work returns.

    The text comes back in a file in memory. A full pipe would block a writer until somebody reads,
    and nobody reads before the process has ended.
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
        """Return the text, after the process has ended."""
        size = os.fstat(self._file).st_size
        return os.pread(self._file, size, 0).decode(errors="replace")

    def news(self) -> Ended | None:
        """Return how the process ended, once; otherwise None."""
        status = None if self._has_ended else self.child.poll()
        if status is None:
            return None
        self._has_ended = True
        return Ended(status, self.read_text() or f"the process {how_it_ended(status)}")

    def end(self) -> None:
        """End the process if it still runs, and close the file."""
        if not self._has_ended:
            self.child.kill()
            self.child.wait()
        self.close()

    def close(self) -> None:
        """Close the file of a process that has ended."""
        os.close(self._file)


def run_helper(work: Work, name: str, log: Log) -> Ended:
    """Do the work in its own process and return how it ended; `name` begins the reason.

    A stop takes precedence over successful work: the next step must not start.
    """
    try:
        helper = HelperProcess(work)
    except OSError as error:  # a limit of processes or memory may be temporary
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
    """Return the work with retries after exceptions, with a pause before each."""

    def run() -> tuple[int, str]:
        pauses = list(PAUSES_SECONDS)
        while True:
            try:
                return work()
            except Exception as error:  # noqa: BLE001 -- no error may end a command
                if not pauses:
                    return EXIT_FAILED, f"{name} failed ({error!r})"
                pause = pauses.pop(0)
                log.warning(f"{name} failed ({error!r}); trying again in {pause:g} s")
                time.sleep(pause)

    return run
