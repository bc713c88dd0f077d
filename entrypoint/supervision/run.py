"""Starting a resolved command: the gate and the command as children of the supervisor."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from entrypoint.arguments import Request
from entrypoint.errors import EXIT_PEER_LOST
from entrypoint.log import Log
from entrypoint.settings.options import Options
from entrypoint.status.board import RUNNING, STARTING, STOPPING, Board
from entrypoint.supervision.child_process import ChildProcess
from entrypoint.supervision.command import become
from entrypoint.supervision.helper_process import HelperProcess, Work, run_helper
from entrypoint.supervision.restarts import Progress, Restarts
from entrypoint.supervision.supervisor import Job, supervise
from entrypoint.supervision.waiting import Ended, Waiter

STDIN = 0
"""The file descriptor."""

EXIT_NO_PROCESS = 71  # EX_OSERR of sysexits.h: "cannot fork"


@dataclass(frozen=True, kw_only=True)
class Peers:
    """What is done about the peers of a cluster, each in a process of its own."""

    number: int
    """How many there are beside this worker."""
    meet: Callable[[int], tuple[int, str]] | None
    """The gate: waits for them before the command starts, after so many restarts."""
    watch: Work
    """Watches whether they come as far as the command does, while that waits for them. Its 75, with
    a reason, ends the command."""


def run(  # noqa: PLR0913 -- what, with what, by which rules, with whom, and where to say so
    request: Request,
    environment: Mapping[str, str],
    options: Options,
    log: Log,
    *,
    peers: Peers | None,
    board: Board,
) -> int:
    """Run the command under supervision; return the exit code. The board is told what goes on."""
    terminal = os.isatty(STDIN)
    path = options.progress_file or _new_progress_file(environment)
    command = CommandRunner(
        command=request.command,
        environment={**environment, "PROGRESS_FILE": path, **board.variables},
        log=log,
        grace_seconds=options.stop_grace_seconds,
        terminal=terminal,
        watch=peers.watch if peers else None,
        board=board,
        state=STARTING if request.is_trainer else RUNNING,
    )
    # An interactive shell ends with the code of the last thing that was typed into it.
    limit = 0 if terminal and not request.is_trainer else options.max_restarts
    job = Job(
        pass_gate=lambda count: _pass_gate(peers, count, log),
        run_command=command.run,
        restarts=Restarts(limit, peers.number if peers else 0, Progress(path)),
        peer_lost_exit_code=options.peer_lost_exit_code,
        failure_file=options.failure_file,
        board=board,
    )
    return supervise(job, log)


def _pass_gate(peers: Peers | None, restart_count: int, log: Log) -> Ended:
    """Meet the peers, if there are any and they are to be met."""
    meet = peers.meet if peers else None
    if meet is None:
        return Ended(0, "")
    return run_helper(lambda: meet(restart_count), "the gate", log)


def _new_progress_file(environment: Mapping[str, str]) -> str:
    """Return a path that no other command has; whoever makes progress makes the file."""
    name = f"cluster-trainer-{os.getpid()}-{os.urandom(4).hex()}.progress"
    return str(Path(environment.get("TMPDIR") or "/tmp", name))  # noqa: S108 -- the usual default


@dataclass(frozen=True, kw_only=True)
class CommandRunner:
    """Runs a command as a child, as often as it takes."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log: Log
    grace_seconds: float
    terminal: bool
    watch: Work | None
    board: Board = field(default_factory=Board)
    state: str = RUNNING
    """What the command is at until it says more."""

    def run(self, restart_count: int) -> tuple[Ended, Sequence[str]]:
        """Run the command to its end; return it with the last lines that it printed."""
        environment = {**self.environment, "RESTART_COUNT": str(restart_count)}
        self.board.note_start(self.state, restart_count)
        # Before there are threads: what is forked beside them may find a lock taken for ever.
        watcher = self._start_watcher()
        if self.terminal:
            child = ChildProcess(lambda: become(self.command, environment), terminal=True)
            return self._wait_for(child, watcher), ()
        # Here, because threads take time to import, and `explain` needs none.
        from entrypoint.supervision.output import Output  # noqa: PLC0415

        output = Output(self.log, self.board)

        def start() -> int:
            output.attach()
            return become(self.command, environment)

        try:
            child = ChildProcess(start)
        except OSError as error:
            if watcher:
                watcher.end()
            return Ended(EXIT_NO_PROCESS, f"the command cannot be started: {error.strerror}"), ()
        output.start()
        ended = self._wait_for(child, watcher)
        return ended, output.finish()

    def _start_watcher(self) -> HelperProcess | None:
        """Start watching the peers, if there are any; the command does not depend on it."""
        try:
            return HelperProcess(self.watch) if self.watch else None
        except OSError as error:
            self.log.warning(f"the peers cannot be watched: {error.strerror}")
            return None

    def _wait_for(self, child: ChildProcess, watcher: HelperProcess | None) -> Ended:
        """Wait for the command's end, while the peers are watched."""
        waiter = Waiter(child, "the command", self.grace_seconds, self.log, self._note_stop)
        if watcher is None:
            return waiter.wait()
        ended = waiter.wait(lambda: self._verdict(watcher))
        watcher.end()
        return ended

    def _note_stop(self) -> None:
        """Note that the command was asked to end."""
        detail = f"the command has {self.grace_seconds:g} s to end"
        self.board.note(STOPPING, detail, within_seconds=self.grace_seconds)

    def _verdict(self, watcher: HelperProcess) -> Ended | None:
        """Return why the command waits in vain; None while it does not, as far as is known."""
        news = watcher.news()
        if news is None or news.code == 0:
            return None
        if news.code == EXIT_PEER_LOST:
            return news
        self.log.warning(f"the peers are not watched any more: {news.reason}")
        return None
