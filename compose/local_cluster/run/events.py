"""The engine's events, and what they mean for a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Union

EXIT_STOPPED = 143
SIGKILL, SIGTERM = "9", "15"
ACTIONS = ("start", "kill", "die")
_FIELDS = (
    "{{.Action}}",
    '{{index .Actor.Attributes "com.docker.compose.service"}}',
    '{{or .Actor.Attributes.exitCode "-"}}',
    '{{or .Actor.Attributes.signal "-"}}',
    "{{.Actor.ID}}",
    "{{.TimeNano}}",
)
FORMAT = " ".join(_FIELDS)
"""One line an event, for `docker events --format`."""


@dataclass(frozen=True)
class Event:
    """A container was started, was sent a signal, or has died.

    Attributes:
        action: one of ACTIONS.
        service: the worker.
        code: its exit code; "-": it has not died.
        signal: the signal that it was sent; "-": none.
        container: its id.
        time: in nanoseconds.
    """

    action: str
    service: str
    code: str
    signal: str
    container: str
    time: str

    @property
    def seconds(self) -> str:
        """The time as `docker logs --since` takes it."""
        return f"{self.time[:-9]}.{self.time[-9:]}"


def parse(line: str) -> Event | None:
    """Return the event of a line, None for a line of another form."""
    fields = line.split()
    return Event(*fields) if len(fields) == len(_FIELDS) and fields[0] in ACTIONS else None


@dataclass(frozen=True)
class Started:
    """A worker runs. Its lines are shown from a time on."""

    service: str
    container: str
    since: str
    again: bool


@dataclass(frozen=True)
class Stopped:
    """A worker was asked to stop and has ended. `others_wait`: others still run."""

    service: str
    others_wait: bool


@dataclass(frozen=True)
class Failed:
    """A worker has ended with an error. `first`: no other one had ended before."""

    service: str
    code: int
    container: str
    first: bool


Change = Union[Started, Stopped, Failed, None]


class Signalled(Enum):
    """Which signal a worker was sent since its start."""

    NOT = "none that ends it"
    TO_STOP = "SIGTERM, so it was asked to stop, whatever it is sent then"
    KILLED = "SIGKILL, by hand"


@dataclass
class _Worker:
    """A worker as the events leave it.

    Attributes:
        code: its exit code; None: it has not ended.
        ended: when it ended last, as `docker logs --since` takes it.
        signalled: what it was sent.
        is_coming: whether it has ended and is being started again.
    """

    code: int | None = None
    ended: str = "0"
    signalled: Signalled = Signalled.NOT
    is_coming: bool = False


class WorkerStates:
    """The workers of a cluster as the engine's events leave them."""

    def __init__(self, services: Sequence[str]) -> None:
        self._workers = {service: _Worker() for service in services}
        self._has_one_come_back = False

    @property
    def running(self) -> int:
        """How many have not ended, or come back."""
        return sum(one.code is None or one.is_coming for one in self._workers.values())

    def exit_code(self) -> int:
        """Return the cluster's, when no worker runs and none has failed."""
        return EXIT_STOPPED if EXIT_STOPPED in self._codes() else 0

    def missing(self) -> list[str]:
        """Return the workers that have ended without success."""
        return [service for service, worker in self._workers.items() if worker.code]

    def is_one_done(self) -> bool:
        """Tell whether a worker has ended with success, and meets the others no more."""
        return 0 in self._codes()

    def was_killed(self, service: str) -> bool:
        """Tell whether a worker's container was killed by hand, and was not asked to stop before.

        Exit code 137 alone may be that of a command that was killed too often within it.
        """
        return self._workers[service].signalled is Signalled.KILLED

    def comes_back(self, service: str) -> None:
        """Note that a worker that has ended is being started again."""
        self._workers[service].is_coming = True
        self._has_one_come_back = True

    def take(self, event: Event) -> Change:
        """Take in an event. Events of other services change nothing."""
        worker = self._workers.get(event.service)
        if worker is None:
            return None
        if event.action == "start":
            self._workers[event.service] = _Worker(ended=worker.ended)
            again = worker.code is not None
            return Started(event.service, event.container, worker.ended, again)
        if event.action == "die":
            return self._die(worker, event)
        if event.signal == SIGTERM:
            worker.signalled = Signalled.TO_STOP
        elif event.signal == SIGKILL and worker.signalled is Signalled.NOT:
            worker.signalled = Signalled.KILLED
        return None

    def _die(self, worker: _Worker, event: Event) -> Change:
        first = not self._codes() and not self._has_one_come_back
        # The engine says so when it has all of a container's lines; those of a later start follow.
        worker.code, worker.ended = int(event.code), event.seconds
        if worker.code == EXIT_STOPPED:
            return Stopped(event.service, others_wait=self._somebody_was_not_asked())
        if worker.code:
            return Failed(event.service, worker.code, event.container, first)
        return None

    def _codes(self) -> list[int]:
        return [one.code for one in self._workers.values() if one.code is not None]

    def _somebody_was_not_asked(self) -> bool:
        """Nobody waits where all were asked, as `make stop` does."""
        running = [one for one in self._workers.values() if one.code is None]
        return any(one.signalled is not Signalled.TO_STOP for one in running)
