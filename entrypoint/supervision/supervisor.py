"""Runs the command: the gate, then the command as a child, then both again if a retry may help.

It works under tini with plain `docker run`, without another supervisor. TensorFlow swallows
SIGTERM, and holds the GIL while it waits for its peers. So everything that acts on a command is in
this process, which never imports TensorFlow.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from entrypoint.errors import EXIT_PEER_LOST, FINAL_CODES
from entrypoint.log import Log
from entrypoint.settings.options import Options
from entrypoint.status.board import RESTARTING, Board
from entrypoint.supervision.child.child_process import NOTICES, STOPS, next_signal
from entrypoint.supervision.child.ended import Ended, stopped_by
from entrypoint.supervision.child.waiter import say_unheard
from entrypoint.supervision.failure_file import remove_failure, write_failure
from entrypoint.supervision.restarts import Count, Restarts


@dataclass(frozen=True, kw_only=True)
class SupervisedCommand:
    """The functions that are run, and the options."""

    pass_gate: Callable[[int], Ended]
    """Waits for the peers; takes the number of restarts. Code 0 lets the command start."""
    run_command: Callable[[int, str], tuple[Ended, Sequence[str]]]
    """Runs the command to its end; takes the number of restarts and the result of the gate. Also
    returns the last printed lines."""
    restarts: Restarts
    options: Options
    board: Board
    """Notes restarts."""


def supervise(job: SupervisedCommand, log: Log) -> int:
    """Run the job to its end and return the exit code; signals must be blocked."""
    restart_count = 0
    while True:
        gate = job.pass_gate(restart_count)
        if gate.code or gate.leaves_nothing:
            return end(gate, (), job.options, log)
        ended, last_lines = job.run_command(restart_count, gate.found)
        if not ended.may_be_retried:
            return end(ended, last_lines, job.options, log)
        peer_lost = job.restarts.has_peers and ended.code == EXIT_PEER_LOST
        restarts = job.restarts.after(peer_lost=peer_lost)
        if not restarts.take():
            return end(_given_up(ended, restarts), last_lines, job.options, log)
        job.board.restarts = restart_count + 1
        stop = _pause(ended, restarts, log, job.board, peer_lost=peer_lost)
        if stop:
            return end(stop, (), job.options, log)
        restart_count += 1


def end(ended: Ended, last_lines: Sequence[str], options: Options, log: Log) -> int:
    """Log an end other than 0, and write the reason of a failure to FAILURE_FILE.

    After a success the file is removed, because the command may have written it before a restart.
    Returns the exit code.
    """
    code = options.peer_lost_exit_code if ended.code == EXIT_PEER_LOST else ended.code
    if code == 0:
        remove_failure(options.failure_file, log)
    elif ended.stopped:
        log.info(ended.reason)
    else:
        write_failure(options.failure_file, log, ended.reason, last_lines)
        if code not in FINAL_CODES:  # already reported in a message
            log.error(_with_code(ended.reason, code))
    return code


def _with_code(reason: str, code: int) -> str:
    """Return the reason with the exit code, unless it already contains the code."""
    shown = f"exit code {code}"
    return reason if re.search(rf"{shown}\b", reason) else f"{reason} ({shown})"


def _given_up(ended: Ended, restarts: Count) -> Ended:
    """Return the end of a command that is not restarted."""
    if not restarts.limit:
        return ended
    times = "1 restart" if restarts.limit == 1 else f"{restarts.limit} restarts"
    return Ended(ended.code, f"gave up after {times} without progress: {ended.reason}")


def _pause(
    ended: Ended, restarts: Count, log: Log, board: Board, *, peer_lost: bool
) -> Ended | None:
    seconds = restarts.delay_seconds()
    again = f"restart {restarts.number} of {restarts.limit}"
    if peer_lost:
        again = f"a peer was lost, meeting the peers again: {again}"
    board.note(RESTARTING, f"in {seconds:.1f} s: {ended.reason}", within_seconds=seconds)
    log.warning(f"{ended.reason}; {again} in {seconds:.1f} s (MAX_RESTARTS, without progress)")
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        number = next_signal(left)
        if number in STOPS:
            return stopped_by(number, "before a restart")
        if number is not None and number in NOTICES:
            say_unheard([number], log)
    return None
