"""Shows and saves the workers' lines: container.log has all, the screen has some.

Worker 0, the chief, logs the events of the cluster. Of every other worker, the screen shows only
its own events: warnings, errors with the lines that follow them, waits, restarts, its end, and
standard error. VERBOSE=1 shows all lines.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from threading import Thread
from typing import IO, BinaryIO, Callable, cast

from local_cluster import docker_engine
from local_cluster.messages import complain, write
from local_cluster.run.folder import LOG

# Lines of TensorFlow that are of no use to people:
# - C++ info lines (level I), which cannot be switched off before TensorFlow has started;
# - a warning about the iterator that tf.distribute makes;
# - a failure of the graph optimizer on a convolution with a bias before a LeakyReLU. It happens on
#   one device, too; the graph stays as it was, and the results are right.
NOTES = re.compile(
    rb"^I[0-9]{4} [0-9:.]+ +[0-9]+ [a-z_]+\.cc:[0-9]+\]"
    rb"|Input of GeneratorDatasetOp"
    rb"|meta_optimizer\.cc:[0-9]+\] remapper failed: INVALID_ARGUMENT: Mutation::Apply error: "
)
TIME_AND_LEVEL = rb"^([0-9:]{8} [A-Z]+) %s "
PROGRESS = re.compile(rb"INFO epoch [0-9]+/[0-9]+  (training|evaluating): ")
"""The chief's progress line, which comes every ten seconds, after the time."""
TIME = len("12:00:00 ")
AS_JSON = b'"level": "DEBUG"'
OURS = re.compile(rb"[0-9:]{8} ([A-Z]+) ")
SAID_BY_ALL = b"DEBUG"
"""The level of a line that the chief logs, too. The entrypoint and the trainer set it."""
GRAVE = (b"ERROR", b"CRITICAL")
"""Levels of messages that may have several lines, such as a traceback; a warning has one."""


def shown(service: str, line: bytes) -> bytes | None:
    """Return a line for the screen, with the worker's name once, in front; None: not shown."""
    if NOTES.search(line):
        return None
    name = service.encode()
    once = re.sub(TIME_AND_LEVEL % re.escape(name), rb"\1 ", line.rstrip(b"\r\n"))
    return name + b" | " + once + b"\n"


@dataclass(frozen=True)
class ScreenOptions:
    """The screen's options.

    Attributes:
        shows_all: whether to show every line of every worker.
        draws: whether it is a terminal with a live line, which shows the progress.
    """

    shows_all: bool = False
    draws: bool = False


class Voice:
    """Selects the lines of a worker's standard output, or standard error, for the screen.

    Args:
        service: the worker.
        screen: the screen's options.
        is_chief: whether it logs the events of the cluster.
        is_error: whether it is the standard error.
    """

    def __init__(
        self, service: str, screen: ScreenOptions, *, is_chief: bool, is_error: bool
    ) -> None:
        self._service, self._screen = service, screen
        self._is_chief, self._is_error = is_chief, is_error
        self._is_grave = False

    def take(self, line: bytes) -> bytes | None:
        """Return the line for the screen; None: not shown."""
        visible = shown(self._service, line)
        if visible is None or self._screen.shows_all:
            return visible
        return visible if self._is_for_people(visible.partition(b" | ")[2]) else None

    def _is_for_people(self, text: bytes) -> bool:
        if self._is_chief:
            return not (self._screen.draws and PROGRESS.match(text, TIME))
        if text.startswith(b"{"):  # LOG_FORMAT=json
            return AS_JSON not in text
        ours = OURS.match(text)
        if ours is None:
            return self._is_error or self._is_grave
        self._is_grave = ours[1] in GRAVE
        return ours[1] != SAID_BY_ALL


class WorkerLines:
    """Saves all lines of a worker in its log, and shows those for people on the screen.

    Args:
        service: the worker.
        log: the open file in which all lines are saved; None: they are not saved.
        screen: the screen's options.
        is_chief: whether it logs the events of the cluster.
        on_error_line: is called after each line of its standard error.
    """

    def __init__(
        self,
        service: str,
        log: BinaryIO | None,
        screen: ScreenOptions,
        *,
        is_chief: bool,
        on_error_line: Callable[[], None] | None = None,
    ) -> None:
        self._service, self._log, self._on_error_line = service, log, on_error_line
        self._said, self._complained = (
            Voice(service, screen, is_chief=is_chief, is_error=is_error)
            for is_error in (False, True)
        )

    def take(self, line: bytes, *, is_error: bool) -> None:
        """Save and show a line of its standard output, or of its standard error."""
        if self._log:
            _save(self._service, self._log, line)
        visible = (self._complained if is_error else self._said).take(line)
        if visible is not None:
            write(sys.stdout, visible)
        if is_error and self._on_error_line:
            self._on_error_line()


def follow(container: str, since: str, lines: WorkerLines) -> Thread:
    """Show and save a container's lines from a time on, in a thread that ends after the last line.

    Args:
        container: its id.
        since: the time.
        lines: shows and saves them.
    """
    command = ["logs", "--follow", "--since", since, container]
    process = docker_engine.start(command, output=subprocess.PIPE, errors=subprocess.PIPE)
    thread = Thread(target=lambda: take_both(process, lines.take))
    thread.start()
    return thread


def take_both(process: subprocess.Popen[bytes], take: Callable[..., None]) -> int:
    """Give each line of a process's two outputs to `take`; return its exit code when it has ended.

    Args:
        process: a process with pipes for both outputs.
        take: is called with a line and `is_error`, from two threads.
    """

    def read(stream: IO[bytes], *, is_error: bool) -> None:
        with stream:
            for line in stream:
                take(line, is_error=is_error)

    errors = Thread(target=lambda: read(cast("IO[bytes]", process.stderr), is_error=True))
    errors.start()
    read(cast("IO[bytes]", process.stdout), is_error=False)
    errors.join()
    return process.wait()


def _save(service: str, log: BinaryIO, line: bytes) -> None:
    try:
        log.write(line)
    except OSError as error:  # such as a full disk: the run continues, with its lines on the screen
        complain(f"{service}/{LOG}: {error.strerror}")
