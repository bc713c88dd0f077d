"""The queue of events that a run waits for: signals, Compose's end, and the engine's events."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import Callable, Union

from local_cluster import docker_engine
from local_cluster.run.docker_events import ACTIONS, FORMAT, Event, Failed, parse

SIGNALS = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143}
"""The signals that end a run, with their exit codes."""


@dataclass(frozen=True)
class SignalReceived:
    """This process was sent a signal; `code` is the resulting exit code."""

    code: int


@dataclass(frozen=True)
class UpEnded:
    """Compose has started the workers, or failed to."""

    code: int


@dataclass(frozen=True)
class AskedToStart:
    """The engine was asked to start a worker's container again; if it did, `error` is empty."""

    worker: Failed
    error: str


@dataclass(frozen=True)
class EventsEnded:
    """The stream of the engine's events has ended."""


Happening = Union[Event, SignalReceived, UpEnded, AskedToStart, EventsEnded]


def listen_to_signals(put: Callable[[SignalReceived], object]) -> None:
    """Put signals into a queue, except those that this process was started to ignore (nohup)."""

    def tell(number: int, _frame: FrameType | None) -> None:
        put(SignalReceived(SIGNALS[signal.Signals(number)]))

    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, tell)


def ignore_signals() -> None:
    """Ignore signals from now on: removing a cluster must not be interrupted."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def wait_for_up(queue: SimpleQueue[Happening], up: subprocess.Popen[bytes]) -> None:
    """Put the result of Compose's start into the queue."""
    Thread(target=lambda: queue.put(UpEnded(up.wait())), daemon=True).start()


def start_again(queue: SimpleQueue[Happening], worker: Failed) -> None:
    """Ask the engine to start a container again, and put the result into the queue."""

    def ask() -> None:
        ended = docker_engine.ask("start", worker.container)
        error = ended.stderr.strip() or f"exit code {ended.returncode}"
        queue.put(AskedToStart(worker, error if ended.returncode else ""))

    Thread(target=ask, daemon=True).start()


def start_events(project: str, since: str) -> subprocess.Popen[bytes]:
    """Start the stream of a project's events, from a time that may have passed."""
    filters = [f"event={action}" for action in ACTIONS]
    filters.append(f"label={docker_engine.PROJECT}={project}")
    chosen = [part for text in filters for part in ("--filter", text)]
    command = ["events", "--since", since, "--format", FORMAT, *chosen]
    return docker_engine.start(command, output=subprocess.PIPE)


def read_events(queue: SimpleQueue[Happening], process: subprocess.Popen[bytes]) -> None:
    """Put the engine's events into the queue."""

    def read() -> None:
        for line in docker_engine.lines_of(process):
            event = parse(line.decode(errors="replace"))
            if event:
                queue.put(event)
        queue.put(EventsEnded())

    Thread(target=read, daemon=True).start()
