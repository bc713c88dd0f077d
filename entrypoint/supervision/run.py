"""Starts a resolved command: the gate and the command are children of the supervisor."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from entrypoint.arguments import Request
from entrypoint.errors import EXIT_NOBODY_CAME, EXIT_PEER_LOST
from entrypoint.log import Log
from entrypoint.settings.options import Options
from entrypoint.status.board import RUNNING, STARTING, STOPPING, Board
from entrypoint.supervision import end_marks
from entrypoint.supervision.child.child_process import ChildProcess, take_notices
from entrypoint.supervision.child.command import become
from entrypoint.supervision.child.ended import Ended
from entrypoint.supervision.child.helper_process import run_helper
from entrypoint.supervision.child.waiter import Waiter, say_unheard
from entrypoint.supervision.peers.beside import Beside, Peers
from entrypoint.supervision.restarts import ProgressFile, Restarts
from entrypoint.supervision.supervisor import SupervisedCommand, supervise
from entrypoint.supervision.workspace.working_folder import RUNS, working_folder

PROGRESS_NAME, MARKS_NAME = "progress", "ends"
STDIN = 0
"""The file descriptor."""

EXIT_NO_PROCESS = 71  # EX_OSERR of sysexits.h: "cannot fork"
NO_THREAD = OSError(errno.EAGAIN, "no thread for its output: a limit of processes is reached")


def run(  # noqa: PLR0913 -- all parts of a start
    request: Request,
    environment: Mapping[str, str],
    options: Options,
    log: Log,
    *,
    peers: Peers | None,
    board: Board,
) -> int:
    """Run the command under supervision; return the exit code. The board notes the states."""
    terminal = os.isatty(STDIN)
    folder = None if request.is_trainer else working_folder(request.command, environment, log)
    progress = options.progress_file or _new_file(environment, board, PROGRESS_NAME)
    path = _from(folder, progress)  # the same file for the command and for this process
    command = CommandRunner(
        command=request.command,
        environment={**environment, "PROGRESS_FILE": path, **board.variables},
        marks=Path(_new_file(environment, board, MARKS_NAME)),
        log=log,
        grace_seconds=options.stop_grace_seconds,
        terminal=terminal,
        peers=peers,
        board=board,
        folder=folder,
        state=STARTING if request.is_trainer else RUNNING,
    )
    runs = Path(environment.get("TRAINER_RUN_DIR") or RUNS) / log.worker
    # An interactive shell exits with the code of the last command that was typed.
    limit = 0 if terminal and not request.is_trainer else options.max_restarts
    job = SupervisedCommand(
        pass_gate=lambda count: _pass_gate(peers, count, log, board, command.mark_in(runs)),
        run_command=command.run,
        restarts=Restarts(limit, peers.number if peers else 0, ProgressFile(path)),
        options=options,
        board=board,
    )
    return supervise(job, log)


def _pass_gate(
    peers: Peers | None, restart_count: int, log: Log, board: Board, mark: Path | None
) -> Ended:
    """Meet the peers, if there are any and the gate is on.

    If no peer comes, and `mark` shows that this command has already ended with 0, nothing is left
    to do.
    """
    meet = peers.meet if peers else None
    if meet is None:
        return Ended(0, "")
    started = time.monotonic()
    ended = run_helper(lambda: meet(restart_count), "the gate", log)
    board.note_wait(time.monotonic() - started)
    if ended.code != EXIT_NOBODY_CAME:
        return ended
    if mark is None or restart_count:
        return replace(ended, code=EXIT_PEER_LOST)
    log.warning(
        f"no other worker came, and this command has ended with 0 before ({mark}): nothing is "
        "left to do. To run it again, start all workers"
    )
    return Ended(0, "", leaves_nothing=True)


def _from(folder: Path | None, path: str) -> str:
    """Return a path as an absolute one; relative ones begin in the command's folder."""
    try:
        return str(Path(folder or "", path).absolute())
    except FileNotFoundError:  # the working directory was removed
        return path


def _new_file(environment: Mapping[str, str], board: Board, kind: str) -> str:
    """Return an unused path; the command creates the file if it needs it."""
    if board.folder:  # a folder that can be written, even with a read-only root
        return str(board.folder / kind)
    name = f"cluster-trainer-{os.getpid()}-{os.urandom(4).hex()}.{kind}"
    return str(Path(environment.get("TMPDIR") or "/tmp", name))  # noqa: S108 -- the usual default


@dataclass(frozen=True, kw_only=True)
class CommandRunner:
    """Runs a command as a child, as often as necessary."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log: Log
    grace_seconds: float
    terminal: bool
    peers: Peers | None
    marks: Path
    """The file in which the command lists its end marks (end_marks.py)."""
    board: Board = field(default_factory=Board)
    folder: Path | None = None
    """The command's working directory, if it is not this process's."""
    state: str = RUNNING
    """The command's state until it reports more."""

    def run(self, restart_count: int, meeting: str = "") -> tuple[Ended, Sequence[str]]:
        """Run the command to its end; return the end with the last printed lines.

        `meeting` is the result of the gate, as text.
        """
        end_marks.forget(self.marks)
        by = self._digest()  # before the run, because the script may be edited meanwhile
        ended, last_lines = self._run(restart_count, meeting)
        if ended.code == 0 and not ended.stopped:  # a stopped command may have more to do
            end_marks.put(self.marks, by, self.log)
        return ended, last_lines

    def mark_in(self, folder: Path) -> Path | None:
        """Return the mark of this command's successful end; None without one."""
        return end_marks.mark_in(folder, self._digest())

    def _digest(self) -> str:
        workers = 1 + (self.peers.number if self.peers else 0)
        return end_marks.digest(self.command, self.environment, workers, self.folder)

    def _run(self, restart_count: int, meeting: str) -> tuple[Ended, Sequence[str]]:
        environment = {
            **self.environment,
            end_marks.VARIABLE: str(self.marks),
            "RESTART_COUNT": str(restart_count),
            "START_ID": os.urandom(8).hex(),
        }
        self.board.note_start(self.state, restart_count)
        say_unheard(take_notices(), self.log)
        # Before threads exist: a forked process may inherit a lock that a thread holds.
        beside = Beside.start(self.peers, meeting, self.environment["PROGRESS_FILE"], self.log)
        if self.terminal:
            try:
                child = ChildProcess(
                    lambda: become(self.command, environment | beside.inherit(), self.folder),
                    terminal=True,
                    adopts=True,
                )
            except OSError as error:
                return self._not_started(error, beside), ()
            return self._wait_for(child, beside), ()
        # imported here: threads take time to import, and `explain` needs none
        from entrypoint.supervision.output.notices import are_unwanted  # noqa: PLC0415
        from entrypoint.supervision.output.pipes import Output  # noqa: PLC0415

        level = self.environment.get("TF_CPP_MIN_LOG_LEVEL")
        try:
            output = Output(self.log, self.board, without_notices=are_unwanted(level))
        except OSError as error:
            return self._not_started(error, beside), ()

        def start() -> int:
            output.attach()
            return become(self.command, environment | beside.inherit(), self.folder)

        try:
            child = ChildProcess(start, adopts=True)
        except OSError as error:
            output.close()
            return self._not_started(error, beside), ()
        if not output.start():
            child.kill()
            child.wait()
            return self._not_started(NO_THREAD, beside), output.finish()
        ended = self._wait_for(child, beside)
        return ended, output.finish()

    def _not_started(self, error: OSError, beside: Beside) -> Ended:
        """Return the end of a command that could not start because of a temporary limit."""
        beside.end()
        return Ended(EXIT_NO_PROCESS, f"the command cannot be started: {error.strerror}")

    def _wait_for(self, child: ChildProcess, beside: Beside) -> Ended:
        beside.give_up()
        waiter = Waiter(child, "the command", self.grace_seconds, self.log, self._note_stop)
        ended = waiter.wait(beside.verdict)
        beside.end()
        return ended

    def _note_stop(self) -> None:
        detail = f"the command has {self.grace_seconds:g} s to end"
        self.board.note(STOPPING, detail, within_seconds=self.grace_seconds)
