"""Follows the state of a worker's container on its machine."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from threading import Event, Thread
from typing import IO, Callable, cast

from local_cluster import processes
from machines.machine import Machine, last_line
from machines.own_container import OwnContainer

AGAIN_SECONDS = 2.0
"""The time after which a machine that does not answer is tried again."""
STATE = "{{.State.Status}} {{.State.ExitCode}}"
SCRIPT = """
look() {{
    docker inspect --format "state $1 {state}" "$id" 2>/dev/null || echo "state $1 gone 0"
}}
docker version >/dev/null || exit 1
id=$({{ {find}; }} 2>/dev/null) || id=none
now=$(date +%s)
look -
docker events --since "$now" --filter container="$id" --filter event=start --filter event=die \
    --filter event=destroy --format '{{{{.Action}}}} {{{{or .Actor.Attributes.exitCode "-"}}}}' |
while read -r action code; do look "$code"; done
"""
FIELDS = 4
"""The number of fields in a line: "state", the code at its death or "-", the status, its code."""


class Status(Enum):
    """A worker's status; the values are texts for messages."""

    RUNNING = "it runs"
    COMING = "it is started again"
    ENDED = "it has ended"
    GONE = "its container was removed"


@dataclass(frozen=True)
class Seen:
    """A worker's state.

    Attributes:
        machine: its machine.
        status: its status.
        code: its last exit code; 0 while it runs.
        died: the exit code, if the worker has ended just now; None: it has not.
    """

    machine: Machine
    status: Status
    code: int
    died: int | None


@dataclass(frozen=True)
class Away:
    """A machine that does not answer."""

    machine: Machine
    why: str


def parse(line: str, machine: Machine) -> Seen | None:
    """Return the state in a line; None for other lines."""
    fields = line.split()
    if len(fields) != FIELDS or fields[0] != "state":
        return None
    _, died, word, code = fields
    status = {
        "running": Status.RUNNING,
        "paused": Status.RUNNING,
        "restarting": Status.COMING,
        "created": Status.COMING,
        "gone": Status.GONE,
    }.get(word, Status.ENDED)
    return Seen(machine, status, int(code), int(died) if died.isdecimal() else None)


class StateFollower:
    """Reports a worker's state, from a thread, until it is closed.

    Args:
        container: the worker's container.
        tell: is called with each state, and if the machine does not answer.
    """

    def __init__(self, container: OwnContainer, tell: Callable[[Seen | Away], None]) -> None:
        self._machine, self._tell = container.machine, tell
        self._script = SCRIPT.format(state=STATE, find=container.id_script)
        self._is_over = Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, and the command on the machine."""
        self._is_over.set()
        end(self._process)

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._process = process = self._machine.follow(self._script)
            for line in cast("IO[bytes]", process.stdout):
                if seen := parse(line.decode(errors="replace"), self._machine):
                    self._tell(seen)
            said = cast("IO[bytes]", process.stderr).read().decode(errors="replace")
            process.wait()
            if not self._is_over.is_set():
                why = last_line(said) if said.strip() else "the connection was lost"
                self._tell(Away(self._machine, why))
            self._is_over.wait(AGAIN_SECONDS)


def end(process: subprocess.Popen[bytes] | None) -> None:
    """Close a followed command's standard input, which also ends the command on its machine."""
    if process is None:
        return
    with suppress(OSError):
        cast("IO[bytes]", process.stdin).close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)
    processes.kill(process)
