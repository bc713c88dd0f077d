"""A command's standard output and error on their way out: kept as they are, or made JSON lines.

The last lines are remembered, so that the reason of a failure can be told after it.
"""

from __future__ import annotations

import os
import threading
from collections import deque

from entrypoint.log import INFO, WARNING, Log
from entrypoint.supervision.json_lines import LineCutter, as_json

STDOUT, STDERR = 1, 2
"""File descriptors."""
DEFAULT_LEVELS = {STDOUT: INFO, STDERR: WARNING}
CHUNK = 65_536
LAST_LINES = 12
FLUSH_SECONDS = 2.0
"""How long the end may take to be read, once the command is gone; a process that left its session
may hold the pipe open for ever."""


class Output:
    """Two pipes, and the threads that pass on what comes through them."""

    def __init__(self, log: Log) -> None:
        """Open the pipes; the command gets the writing ends (`attach`)."""
        self._log = log
        self._pipes = {descriptor: os.pipe() for descriptor in (STDOUT, STDERR)}
        self._threads: list[threading.Thread] = []
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    def attach(self) -> None:
        """In the command's process: write to the pipes."""
        for descriptor, (_, writing) in self._pipes.items():
            os.dup2(writing, descriptor)

    def start(self) -> None:
        """In our process: pass on what comes."""
        for descriptor, (reading, writing) in self._pipes.items():
            os.close(writing)
            thread = threading.Thread(target=self._pump, args=(reading, descriptor), daemon=True)
            thread.start()
            self._threads.append(thread)

    def finish(self) -> list[str]:
        """Wait until all has been passed on; return the last lines that were not empty."""
        for thread in self._threads:
            thread.join(FLUSH_SECONDS)
        return list(self._last)

    def _pump(self, reading: int, descriptor: int) -> None:
        """Pass on one stream until its last writer has closed it."""
        cutter = LineCutter()
        while data := os.read(reading, CHUNK):
            lines = cutter.feed(data)
            self._pass_on(data, lines, descriptor)
        self._pass_on(b"", cutter.end(), descriptor)
        os.close(reading)

    def _pass_on(self, data: bytes, lines: list[str], descriptor: int) -> None:
        """Write a chunk, or the lines in it as JSON, and remember them."""
        self._last.extend(line for line in lines if line.strip())
        if self._log.as_json:
            level = DEFAULT_LEVELS[descriptor]
            objects = [as_json(line, self._log.worker, level) for line in lines if line]
            data = "".join(f"{line}\n" for line in objects).encode()
        write_all(descriptor, data)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it; a reader that has gone away is no reason to stop the command."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return
