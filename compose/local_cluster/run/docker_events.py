"""The engine's events, and the states of workers that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Union

from local_cluster.docker_engine import START

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
FORMAT = f'{{{{if not (index .Actor.Attributes "{START}")}}}}{" ".join(_FIELDS)}{{{{end}}}}'
"""One line for each event, for `docker events --format`. It is empty for a worker of several
machines' cluster, which may have the same project and the same number."""


@dataclass(frozen=True)
class Event:
    """A container was started, was sent a signal, or has ended.

    Attributes:
        action: one of ACTIONS.
        service: the worker.
        code: its exit code; "-": it has not ended.
        signal: the signal that it was sent; "-": none.
        container: its id.
        time: the time in nanoseconds.
    """

    action: str
    service: str
    code: str
    signal: str
    container: str
    time: str

    @property
    def seconds(self) -> str:
        """The time in the format of `docker logs --since`."""
        return f"{self.time[:-9]}.{self.time[-9:]}"


def parse(line: str) -> Event | None:
    """Return the event of a line; None if the line is not an event."""
    fields = line.split()
    return Event(*fields) if len(fields) == len(_FIELDS) and fields[0] in ACTIONS else None


@dataclass(frozen=True)
class Started:
    """A worker runs. Its lines are shown from the time `since`."""

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
    """A worker has ended with an error. `first`: it was the first to end."""

    service: str
    code: int
    container: str
    first: bool


Change = Union[Started, Stopped, Failed, None]


class Signalled(Enum):
    """The signals that a worker was sent since its start."""

    NOT = "no signal that ends it"
    TO_STOP = "SIGTERM: it was asked to stop; later signals do not count"
    KILLED = "SIGKILL, by hand"


@dataclass
class _Worker:
    """A worker's state.

    Attributes:
        code: its exit code; None: it has not ended.
        ended: the time of its last end, in the format of `docker logs --since`.
        signalled: the signals that it was sent.
        is_coming: whether it has ended and is being started again.
    """

    code: int | None = None
    ended: str = "0"
    signalled: Signalled = Signalled.NOT
    is_coming: bool = False


class WorkerStates:
    """The states of a cluster's workers, from the engine's events."""

    def __init__(self, services: Sequence[str]) -> None:
        self._workers = {service: _Worker() for service in services}
        self._has_one_come_back = False

    @property
    def running(self) -> int:
        """The number of workers that run or are being started again."""
        return sum(one.code is None or one.is_coming for one in self._workers.values())

    def exit_code(self) -> int:
        """Return the cluster's exit code, if no worker runs and none has failed."""
        return EXIT_STOPPED if EXIT_STOPPED in self._codes() else 0

    def missing(self) -> list[str]:
        """Return the workers that have ended without success."""
        return [service for service, worker in self._workers.items() if worker.code]

    def is_one_done(self) -> bool:
        """Tell whether a worker has ended with success. It does not meet the others again."""
        return 0 in self._codes()

    def was_killed(self, service: str) -> bool:
        """Tell whether a worker's container was killed by hand, and was not asked to stop before.

        Exit code 137 alone is not enough: the entrypoint also exits with it if its command was
        killed too often.
        """
        return self._workers[service].signalled is Signalled.KILLED

    def comes_back(self, service: str) -> None:
        """Record that a worker that has ended is being started again."""
        self._workers[service].is_coming = True
        self._has_one_come_back = True

    def take(self, event: Event) -> Change:
        """Process an event. Events of other services change nothing."""
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
        # At this event, the engine has all lines of the container's earlier start.
        worker.code, worker.ended = int(event.code), event.seconds
        if worker.code == EXIT_STOPPED:
            return Stopped(event.service, others_wait=self._somebody_was_not_asked())
        if worker.code:
            return Failed(event.service, worker.code, event.container, first)
        return None

    def _codes(self) -> list[int]:
        return [one.code for one in self._workers.values() if one.code is not None]

    def _somebody_was_not_asked(self) -> bool:
        """If all were asked to stop, as by `make stop`, no worker waits."""
        running = [one for one in self._workers.values() if one.code is None]
        return any(one.signalled is not Signalled.TO_STOP for one in running)
