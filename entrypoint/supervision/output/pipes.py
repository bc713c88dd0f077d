"""Forwards a command's standard output and error, unchanged or as JSON lines.

It remembers the last lines, so that the reason of a failure can be reported afterwards.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from entrypoint.errors import STDERR, STDOUT, write_all
from entrypoint.log import INFO, WARNING, Log
from entrypoint.status.board import Board
from entrypoint.supervision.output.json_lines import LineCutter, as_json
from entrypoint.supervision.output.notices import NoticeFilter
from entrypoint.supervision.output.remaining_output import (
    FLUSH_SECONDS,
    Stream,
    left_after_waiting,
    takes_more,
)

DEFAULT_LEVELS = {STDOUT: INFO, STDERR: WARNING}
CHUNK = 65_536
LAST_LINES = 12
NOTED_SECONDS = 0.5
"""The time between two notes of the last line, however many lines a command prints."""


class Output:
    """Two pipes, and the threads that forward their data.

    Attributes:
        streams: this process's descriptors -> the pipes whose data go there.
    """

    def __init__(
        self, log: Log, board: Board | None = None, *, without_notices: bool = False
    ) -> None:
        """Open the pipes; the command gets the writing ends (`attach`).

        The last line is noted on the board. If requested, TensorFlow's notices are omitted; see
        notices.py.
        """
        self._notices = NoticeFilter() if without_notices else None
        self._log, self._board = log, board
        self._has_new, self._is_over = threading.Event(), threading.Event()
        self.streams = {descriptor: Stream(*os.pipe()) for descriptor in (STDOUT, STDERR)}
        self._threads: list[threading.Thread] = []
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    def attach(self) -> None:
        """In the command's process: write to the pipes."""
        for descriptor, stream in self.streams.items():
            os.dup2(stream.writing, descriptor)

    def start(self) -> bool:
        """In the entrypoint's process: forward the data; return False if no thread can start."""
        for stream in self.streams.values():
            os.close(stream.writing)
        try:
            for descriptor, stream in self.streams.items():
                self._start(self._pump, stream, descriptor)
        except RuntimeError:  # a limit of threads
            for stream in list(self.streams.values())[len(self._threads) :]:
                os.close(stream.reading)
            return False
        if self._board:
            with suppress(RuntimeError):  # nothing depends on this thread
                self._start(self._note, self._board)
        return True

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self) -> None:
        """Close the pipes of a command that could not start."""
        for stream in self.streams.values():
            os.close(stream.reading)
            os.close(stream.writing)

    def finish(self) -> list[str]:
        """Wait until all output is forwarded; return the last lines that are not empty.

        A warning says how many bytes nobody has taken.
        """
        pumps = self._threads[: len(self.streams)]
        # fewer pumps, if a thread did not start
        left = left_after_waiting(dict(zip(pumps, self.streams.values(), strict=False)))
        if left and takes_more(STDERR):
            self._log.warning(
                f"the last {left} bytes of the command's output may be missing: the reader of the "
                "log does not take them"
            )
        self._is_over.set()
        self._has_new.set()
        for thread in self._threads[len(self.streams) :]:
            thread.join(FLUSH_SECONDS)
        return list(self._last)

    def _note(self, board: Board) -> None:
        """Note the last line whenever there is a new one, but not too often."""
        while not self._is_over.is_set():
            self._has_new.wait()
            self._has_new.clear()
            if self._last:
                board.line(self._last[-1])
            self._is_over.wait(NOTED_SECONDS)
        if self._last:
            board.line(self._last[-1])

    def _pump(self, stream: Stream, descriptor: int) -> None:
        """Forward one stream until its last writer has closed it."""
        cutter = LineCutter()
        notices = self._notices if descriptor == STDERR else None
        while data := os.read(stream.reading, CHUNK):
            stream.held = len(data)
            stream.steps += 1
            data = notices.feed(data) if notices else data
            self._pass_on(data, cutter.feed(data), descriptor)
            stream.held = 0
            stream.steps += 1
        rest = notices.end() if notices else b""
        self._pass_on(rest, [*cutter.feed(rest), *cutter.end()], descriptor)
        os.close(stream.reading)

    def _pass_on(self, data: bytes, lines: list[str], descriptor: int) -> None:
        """Write a chunk, or its lines as JSON, and remember them."""
        self._last.extend(line for line in lines if line.strip())
        if lines:
            self._has_new.set()
        if self._log.as_json:
            level = DEFAULT_LEVELS[descriptor]
            objects = [as_json(line, self._log.worker, level) for line in lines if line]
            data = "".join(f"{line}\n" for line in objects).encode()
        with suppress(OSError):  # a closed pipe must not stop the command
            write_all(descriptor, data)
