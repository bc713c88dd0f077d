"""Watches the workers of a run: their output, their ends, and machines that do not answer.

The run does not need the watcher. If it ends or loses its connection, the workers continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Callable, Union

from local_cluster.messages import EXIT_CONFIGURATION, EXIT_ERROR, complain, say
from local_cluster.run import event_queue
from local_cluster.run.docker_events import EXIT_STOPPED
from local_cluster.run.event_queue import SignalReceived
from local_cluster.run.lines import ScreenOptions
from local_cluster.run.run import KILLED, REASONS
from machines.machine import at_once
from machines.own_container import OwnContainer
from machines.watching.worker_lines import LineFollower
from machines.watching.worker_states import Away, Seen, StateFollower, Status

STARTED_AGAIN = (71, 75, KILLED, 255)
"""The exit codes after which Docker's restart can help: out of memory, a lost peer, killed, or the
machine was switched off. After any other code, the worker would fail again."""
LOOK_SECONDS = 5.0
"""The time without news after which the watch checks that the cluster still has these machines."""
OVER = (Status.ENDED, Status.GONE)
Told = Union[Seen, Away, SignalReceived]


class Watch:
    """Watches the workers of a run until they end. Only the main thread acts.

    Args:
        containers: the workers' containers.
        screen: the screen's options.
        is_current: tells whether these are still the cluster's machines.
        tail: the number of earlier lines to show for each worker; None: all.
        stop: stops all workers, and returns the error messages; None: the watch stops nothing.
    """

    def __init__(
        self,
        containers: Sequence[OwnContainer],
        screen: ScreenOptions,
        is_current: Callable[[], bool],
        *,
        tail: int | None = None,
        stop: Callable[[], list[str]] | None = None,
    ) -> None:
        self._machines = [one.machine for one in containers]
        self._is_current, self._stop = is_current, stop
        self._queue: SimpleQueue[Told] = SimpleQueue()
        self._seen: dict[str, Seen] = {}
        self._away: set[str] = set()
        self._removed: set[str] = set()
        self.was_left = False  # True: the watch has ended before the workers
        self._states = [StateFollower(one, self._queue.put) for one in containers]
        self._lines = [LineFollower(one, screen, tail) for one in containers]

    def to_the_end(self) -> int:
        """Show the workers until none runs; return the exit code.

        A signal ends the watch, and the workers continue.
        """
        event_queue.listen_to_signals(self._queue.put)
        followers: list[StateFollower | LineFollower] = [*self._states, *self._lines]
        for one in self._states:
            one.start()
        try:
            return self._watch()
        finally:
            at_once(lambda one: one.close(), followers)

    def _watch(self) -> int:
        while not self._is_over():
            told = self._next()
            if isinstance(told, SignalReceived):
                self.was_left = True
                say("the workers continue: `make attach` shows them, `make stop` stops them")
                return told.code
            if isinstance(told, Seen):
                if code := self._take(told):
                    return code
                continue
            if not self._is_current():
                self.was_left = True
                say("another command has changed this cluster; `make attach` shows it again")
                return EXIT_ERROR
            if told:
                self._take_away(told)
        codes = [seen.code for seen in self._seen.values() if seen.code]
        failed = [code for code in codes if code != EXIT_STOPPED]
        return (failed or codes or [EXIT_ERROR if self._removed else 0])[0]

    def _next(self) -> Told | None:
        """Return the next news; None: there was none for LOOK_SECONDS."""
        try:
            return self._queue.get(timeout=LOOK_SECONDS)
        except Empty:
            return None

    def _is_over(self) -> bool:
        """Tell whether all workers have ended, and all their lines are shown."""
        ended = [one for one in self._seen.values() if one.status in OVER]
        if len(ended) < len(self._machines):
            return False
        for lines in self._lines:
            lines.join()
        return self._queue.empty()  # otherwise a worker was started again in the meantime

    def _take_away(self, away: Away) -> None:
        if away.machine.service in self._away:
            return
        self._away.add(away.machine.service)
        complain(
            f"{away.machine.name} does not answer ({away.why}); trying again. Its worker, "
            f"{away.machine.service}, may still run."
        )

    def _take(self, seen: Seen) -> int:
        """Handle a worker's state; return the exit code if it ends the run, otherwise 0."""
        service = seen.machine.service
        before = self._seen.get(service)
        if service in self._away:
            self._away.discard(service)
            say(f"{seen.machine.name} answers again; {service}: {seen.status.value}")
        if seen.status is Status.GONE and (before is None or before.status not in OVER):
            self._removed.add(service)
            complain(f"{service} has not ended, but {seen.status.value}: {seen.machine.name}")
        self._seen[service] = seen
        lines = self._lines[seen.machine.index]
        if before is None or seen.status not in OVER:
            lines.start()
        if seen.status in OVER:
            lines.is_last()
        if self._stop and seen.died not in (None, 0, EXIT_STOPPED, *STARTED_AGAIN):
            return self._end_of(seen, int(seen.died or 0), self._stop)
        if seen.died or (before is None and seen.status is Status.ENDED and seen.code):
            self._tell(seen)
        return 0

    def _tell(self, seen: Seen) -> None:
        service = seen.machine.service
        code = seen.code if seen.died is None else seen.died
        if seen.status is Status.ENDED and code == EXIT_STOPPED:
            say(f"{service} was asked to stop, and has ended")
        elif seen.status is Status.ENDED:
            again = f"`make resume WORKER={seen.machine.index}` starts it again"
            complain(f"{service} ended, with exit code {code} ({_reason(code)}); {again}")
        else:
            complain(
                f"{service} ended, with exit code {code} ({_reason(code)}); it is started again"
            )

    def _end_of(self, seen: Seen, code: int, stop: Callable[[], list[str]]) -> int:
        """Stop all workers, because one would fail again and again; return its exit code."""
        others = "; stopping the others" if len(self._machines) > 1 else ""
        name = f"{seen.machine.service} on {seen.machine.name}"
        complain(f"{name} ended, with exit code {code} ({_reason(code)}){others}.")
        event_queue.ignore_signals()
        for problem in stop():
            complain(problem)
        for lines in self._lines:
            lines.is_last()
            lines.join()
        return code


def _reason(code: int) -> str:
    return REASONS.get(code, "bad configuration" if code == EXIT_CONFIGURATION else _OWN)


_OWN = "an error of its own"
