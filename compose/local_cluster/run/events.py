"""What the engine tells of a cluster, and what that means for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
        code: its exit code, "-" where it has not died.
        signal: which one it was sent, "-" where none.
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
    """A worker runs: its lines are to be shown from a time on."""

    service: str
    container: str
    since: str
    again: bool


@dataclass(frozen=True)
class Stopped:
    """A worker was asked to stop and has ended; whether others run on and wait for it."""

    service: str
    others_wait: bool


@dataclass(frozen=True)
class Failed:
    """A worker has ended with an error; whether no other one had ended, or was killed, before."""

    service: str
    code: int
    container: str
    first: bool


Change = Union[Started, Stopped, Failed, None]


class WorkerStates:
    """The workers of a cluster as the engine's events leave them.

    Attributes:
        running: how many have not ended.
    """

    def __init__(self, services: Sequence[str]) -> None:
        self.running = len(services)
        self._services = tuple(services)
        self._codes: dict[str, int] = {}
        self._asked: set[str] = set()
        self._killed: set[str] = set()
        self._coming: set[str] = set()
        self._ended: dict[str, str] = {}
        self._has_one_come_back = False

    def exit_code(self) -> int:
        """Return the cluster's, when no worker runs and none has failed."""
        return EXIT_STOPPED if EXIT_STOPPED in self._codes.values() else 0

    def missing(self) -> list[str]:
        """Return the workers that have ended otherwise than with success."""
        return [service for service in self._services if self._codes.get(service)]

    def is_one_done(self) -> bool:
        """Tell whether a worker has ended with success, and meets the others no more."""
        return 0 in self._codes.values()

    def was_killed(self, service: str) -> bool:
        """Tell whether a worker's container was killed by hand, and was not asked to stop before.

        Exit code 137 alone may be that of a command that was killed too often within it.
        """
        return service in self._killed - self._asked

    def comes_back(self, service: str) -> None:
        """Note that a worker that has ended is being started again."""
        self.running += 1
        self._coming.add(service)
        self._has_one_come_back = True

    def take(self, event: Event) -> Change:
        """Take notice of an event; containers of other services are none of ours."""
        if event.service not in self._services:
            return None
        if event.action == "start":
            return self._start(event)
        if event.action == "die":
            return self._die(event)
        if event.signal == SIGTERM:
            self._asked.add(event.service)
        elif event.signal == SIGKILL:
            self._killed.add(event.service)
        return None

    def _start(self, event: Event) -> Started:
        again = self._codes.pop(event.service, None) is not None
        self.running += again and event.service not in self._coming
        self._coming.discard(event.service)
        self._asked.discard(event.service)
        self._killed.discard(event.service)
        since = self._ended.get(event.service, "0")
        return Started(event.service, event.container, since, again)

    def _die(self, event: Event) -> Change:
        code = int(event.code)
        first = not self._codes and not self._has_one_come_back
        self.running -= 1
        # The engine says so when it has all of a container's lines; those of a later start follow.
        self._codes[event.service] = code
        self._ended[event.service] = event.seconds
        if code == EXIT_STOPPED:
            return Stopped(event.service, others_wait=self._somebody_was_not_asked())
        return Failed(event.service, code, event.container, first) if code else None

    def _somebody_was_not_asked(self) -> bool:
        """Nobody waits where all were asked, as `make stop` does."""
        return any(
            service not in self._codes and service not in self._asked for service in self._services
        )
