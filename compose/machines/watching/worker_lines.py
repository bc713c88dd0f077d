"""Follows the output of a worker on its machine, and shows each line once."""

from __future__ import annotations

import subprocess
from threading import Event, Lock, Thread

from local_cluster.run.lines import ScreenOptions, WorkerLines, take_both
from machines.own_container import OwnContainer
from machines.watching.worker_states import end

AGAIN_SECONDS = 2.0
LAST_TRIES = 3
MOST_KEPT = 10_000
"""The number of lines whose times are kept."""


class LineFollower:
    """Shows a worker's lines, in a thread, until the last one or until it is closed.

    Docker gives each line a time, by which lines that were already shown are skipped after a
    reconnection. Once one of them has come again, all others are new, even if the machine's clock
    was set back. Before that, older lines are skipped, too: only the times of the last ones are
    kept.

    Args:
        container: the worker's container.
        screen: the screen's options.
        tail: the number of earlier lines to show; None: all.
    """

    def __init__(self, container: OwnContainer, screen: ScreenOptions, tail: int | None) -> None:
        self._container, self._tail = container, tail
        machine = container.machine
        self._lines = WorkerLines(machine.service, None, screen, is_chief=machine.index == 0)
        self._seen: dict[bool, bytes] = {}
        self._shown: dict[tuple[bool, bytes], None] = {}
        # per stream, after a reconnection: whether a line that was shown has come again
        self._coming_again: dict[bool, bool] = {}
        self._lock = Lock()
        self._is_last, self._is_over = Event(), Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: Thread | None = None

    def start(self) -> None:
        """Show lines from now on, even if the worker had ended and is started again."""
        self._is_last.clear()
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._run, daemon=True)
            self._thread.start()

    def is_last(self) -> None:
        """Record that the worker has ended: the thread ends once all lines are shown."""
        self._is_last.set()

    def join(self) -> None:
        """Wait until all lines are shown."""
        if self._thread:
            self._thread.join()

    def close(self) -> None:
        """End the thread, and the command on the machine."""
        self._is_over.set()
        end(self._process)

    def _run(self) -> None:
        tries = LAST_TRIES
        while not self._is_over.is_set() and tries:
            is_last = self._is_last.is_set()
            self._process = self._container.machine.follow(self.reconnected())
            code = take_both(self._process, self.take)
            if is_last:
                tries = tries - 1 if code else 0
            if not self._is_last.is_set():
                self._is_over.wait(AGAIN_SECONDS)

    def reconnected(self) -> str:
        """Return the command of the next connection, and skip the lines that were shown before."""
        self._coming_again = dict.fromkeys(self._seen, False)
        since = min(self._seen.values(), default=b"").decode()
        if since:
            chosen = f"--since {since}"
        else:
            chosen = "" if self._tail is None else f"--tail {self._tail}"
        return self._container.script(f'docker logs --follow --timestamps {chosen} "$id"')

    def take(self, line: bytes, *, is_error: bool) -> None:
        """Show a line, which begins with its time, unless it was shown before."""
        time, space, text = line.partition(b" ")
        if not space or not time[:4].isdigit():  # a message of SSH or Docker
            return
        with self._lock:
            if not self._was_shown(time, is_error=is_error):
                self._keep(time, is_error=is_error)
                self._lines.take(text, is_error=is_error)

    def _was_shown(self, time: bytes, *, is_error: bool) -> bool:
        """Tell whether the line with this time was shown before the last reconnection."""
        if is_error not in self._coming_again:
            return False
        if (is_error, time) in self._shown:
            self._coming_again[is_error] = True
            return True
        if not self._coming_again[is_error] and time < self._seen[is_error]:
            return True
        del self._coming_again[is_error]
        return False

    def _keep(self, time: bytes, *, is_error: bool) -> None:
        self._seen[is_error] = time
        self._shown[is_error, time] = None
        if len(self._shown) > MOST_KEPT:
            del self._shown[next(iter(self._shown))]
