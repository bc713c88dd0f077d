"""Runs a cluster: starts it, watches it to its end, and removes it."""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack
from queue import SimpleQueue
from threading import Thread
from typing import BinaryIO

from local_cluster import docker_engine
from local_cluster.compose import Compose
from local_cluster.messages import EXIT_ERROR, complain, say
from local_cluster.run import event_queue
from local_cluster.run.docker_events import Event, Failed, Started, Stopped, WorkerStates
from local_cluster.run.event_queue import AskedToStart, Happening, SignalReceived, UpEnded
from local_cluster.run.folder import LOG
from local_cluster.run.lines import ScreenOptions, WorkerLines, follow
from local_cluster.run.live import Live
from local_cluster.settings.settings import Settings
from local_cluster.shared_folder import refusal

KILLED = 137
REASONS = {75: "it lost a peer", 78: "bad configuration", KILLED: "killed"}
OUT_OF_MEMORY = "{{.State.OOMKilled}}"
VARIABLES = "{{range .Config.Env}}{{println .}}{{end}}"
BEGINS_ANEW = "TRAINER_RESUME=never"
"""With this setting, each start of a worker moves its earlier files aside and begins at step 0. An
overlay may set it, too."""
MOST_STARTS_AGAIN = 3
"""The maximum number of restarts of each worker."""
UP = ("up", "--detach", "--no-build", "--no-deps", "--remove-orphans", "--force-recreate")


class LocalRun:
    """A cluster in progress. Other threads report events; only the main thread acts."""

    def __init__(self, settings: Settings, compose: Compose, screen: ScreenOptions) -> None:
        self._settings, self._compose, self._screen = settings, compose, screen
        self._queue: SimpleQueue[Happening] = SimpleQueue()
        self._left = dict.fromkeys(settings.services, MOST_STARTS_AGAIN)
        self._workers = WorkerStates(settings.services)
        self._logs: dict[str, BinaryIO] = {}
        self._followers: dict[str, Thread] = {}
        self._up: subprocess.Popen[bytes] | None = None
        self._events: subprocess.Popen[bytes] | None = None
        self._live = Live(settings.folder.below(settings.services[0]), self._workers.missing)

    def to_the_end(self) -> int:
        """Start the workers, show their lines, and remove all containers; return the exit code."""
        event_queue.listen_to_signals(self._queue.put)
        code = EXIT_ERROR
        with ExitStack() as files:
            self._open_logs(files)
            try:
                code = self._start() or self._show()
            finally:
                event_queue.ignore_signals()
                if not self._remove():
                    complain("the engine could not remove all containers; `make down` tries again.")
        return code

    def _open_logs(self, files: ExitStack) -> None:
        """Open each worker's log once; later files of that name in its folder get no lines."""
        for service in self._settings.services:
            folder = self._settings.folder.below(service)
            try:
                self._logs[service] = files.enter_context(folder.open_to_append(LOG))
            except OSError as error:
                raise refusal(folder, error) from error

    def _start(self) -> int:
        """Start the workers; return 0, or the exit code if they do not start."""
        settings = self._settings
        say(f"{settings.workers} worker(s) of {settings.image}, run {settings.run_name}")
        self._events = event_queue.start_events(settings.project, docker_engine.time_of_engine())
        self._up = self._compose.start(*UP, *settings.services)
        event_queue.wait_for_up(self._queue, self._up)
        code = self._code_of(self._queue.get())
        if not code:
            event_queue.read_events(self._queue, self._events)
        return code

    def _show(self) -> int:
        """Watch the run, with a live line if there is a terminal; return the exit code."""
        if not self._screen.draws:
            return self._watch()
        with self._live:
            return self._watch()

    def _watch(self) -> int:
        """Wait until no worker runs, or one has failed; return the exit code.

        TensorFlow would wait for a failed worker for an hour. A worker that was asked to stop may
        be started again, and a killed one is started again.
        """
        while self._workers.running:
            happening = self._queue.get()
            if isinstance(happening, Event):
                code = self._take(happening)
            else:
                code = self._code_of(happening)
            if code:
                return code
        return self._workers.exit_code()

    def _code_of(self, happening: Happening) -> int:
        """Print why a run ends, and return its exit code; 0: it continues."""
        if isinstance(happening, SignalReceived):
            complain(f"stopping: the workers get {self._settings.grace_seconds} s to end.")
            return happening.code
        if isinstance(happening, UpEnded):  # Compose has printed the reason
            return happening.code
        if isinstance(happening, AskedToStart):
            return self._code_of_start(happening)
        complain("the engine's events ended before the workers did.")
        return EXIT_ERROR

    def _code_of_start(self, asked: AskedToStart) -> int:
        if not asked.error:
            return 0
        complain(f"{asked.worker.service} could not be started again: {asked.error}")
        complain(self._sentence(asked.worker))
        return asked.worker.code

    def _take(self, event: Event) -> int:
        """Handle an event; return the exit code if it ends the run, otherwise 0."""
        change = self._workers.take(event)
        if isinstance(change, Started):
            self._show_lines_of(change)
        elif isinstance(change, Stopped) and change.others_wait:
            index = change.service.rpartition("-")[2]
            how = f"the others wait for it: `make resume WORKER={index}`"
            say(f"{change.service} was asked to stop; {how}")
        elif isinstance(change, Failed) and not self._starts_again(change):
            complain(self._sentence(change))
            return change.code
        return 0

    def _starts_again(self, worker: Failed) -> bool:
        """Start a killed container again, like a restart policy; return whether it is started.

        It is not started if it would begin at step 0, or if another worker is already done.
        """
        if not (self._workers.was_killed(worker.service) and self._left[worker.service]):
            return False
        if self._workers.is_one_done():
            return False
        if BEGINS_ANEW in docker_engine.inspected(worker.container, VARIABLES).splitlines():
            return False
        self._left[worker.service] -= 1
        count = f"{MOST_STARTS_AGAIN - self._left[worker.service]} of {MOST_STARTS_AGAIN}"
        complain(f"{worker.service} was killed: starting its container again, {count}.")
        self._workers.comes_back(worker.service)
        event_queue.start_again(self._queue, worker)
        return True

    def _show_lines_of(self, worker: Started) -> None:
        if worker.again:
            say(f"{worker.service} is started again")
            self._followers[worker.service].join()
        is_chief = worker.service == self._settings.services[0]
        lines = WorkerLines(
            worker.service,
            self._logs[worker.service],
            self._screen,
            is_chief=is_chief,
            # The entrypoint writes these lines: training has not begun, or has ended.
            on_error_line=self._live.forget if is_chief else None,
        )
        self._followers[worker.service] = follow(worker.container, worker.since, lines)

    def _sentence(self, worker: Failed) -> str:
        reason = REASONS.get(worker.code, "its own error")
        if (
            worker.code == KILLED
            and docker_engine.inspected(worker.container, OUT_OF_MEMORY) == "true"
        ):
            reason = "out of memory"
        ended = "ended first" if worker.first else "ended"
        others = "; stopping the others" if self._settings.workers > 1 else ""
        return f"{worker.service} {ended}, with exit code {worker.code} ({reason}){others}."

    def _remove(self) -> bool:
        """Stop and remove the workers and their network; return whether that was possible.

        The threads that follow the workers' lines end after all lines were shown and saved.
        """
        grace = ("--timeout", str(self._settings.grace_seconds))
        if self._up and self._up.poll() is None:
            self._up.send_signal(signal.SIGINT)
            self._up.wait()
        self._compose.run("stop", *grace)
        for follower in self._followers.values():
            follower.join()
        if self._events:
            self._events.terminate()
            self._events.wait()
        return self._compose.run("down", "--remove-orphans", *grace) == 0
