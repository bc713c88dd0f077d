"""Decides the exit code of a process, and describes the reason."""

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from cluster_trainer.problems import (
    ConfigurationError,
    ExitCode,
    PeerLostError,
    StopRequestedError,
    TrainingDivergedError,
)
from cluster_trainer.process.lost_peer import (
    gist,
    is_other_call,
    is_refusal,
    tells_of_lost_peer,
)
from cluster_trainer.process.stop import SIGNAL_CODES, STOP_SIGNALS
from cluster_trainer.results.on_screen.screen import OWN

log = logging.getLogger("trainer")


def judge(error: Exception, num_workers: int) -> tuple[int, str]:
    """Return the exit code for the end of a run, and the reason in one line."""
    if isinstance(error, ConfigurationError):
        return ExitCode.BAD_CONFIGURATION, "; ".join(map(str, error.problems))
    if isinstance(error, StopRequestedError):
        return SIGNAL_CODES + error.signal_number, str(error)
    if isinstance(error, PeerLostError):
        return ExitCode.PEER_LOST, str(error)
    if isinstance(error, TrainingDivergedError) or is_other_call(error) or is_refusal(error):
        # The same settings, or the same program, would lead to it again.
        return ExitCode.BAD_CONFIGURATION, str(error)
    if num_workers > 1 and tells_of_lost_peer(error):
        return ExitCode.PEER_LOST, f"a peer was lost ({gist(error)})"
    return ExitCode.CRASHED, gist(error)


def tell(error: Exception, num_workers: int) -> None:
    """Print details of an error for the user, besides the line about the end of the run."""
    if isinstance(error, ConfigurationError):
        print(error, file=sys.stderr)  # noqa: T201
    elif judge(error, num_workers)[0] == ExitCode.CRASHED or is_other_call(error):
        log.error("training failed", exc_info=error)


def end_by(
    error: Exception,
    num_workers: int,
    note: Callable[[int, str | None], object] = lambda *_: None,
    *,
    is_script: bool = True,
) -> None:
    """End the process after an error of a call, unless a script may handle it.

    Args:
        error: the error.
        num_workers: the number of workers that train together.
        note: is called with the exit code and the reason before the end.
        is_script: whether the program is a script, which may handle crashes. Otherwise every error
            ends the process.

    Raises:
        SystemExit: the error is a ConfigurationError, in a script that trains alone: no peer waits
            for the end of this process. See `leave_script`.
    """
    code, reason = judge(error, num_workers)
    if code == ExitCode.CRASHED and is_script:
        return
    tell(error, num_workers)
    note(code, reason)
    if isinstance(error, ConfigurationError) and num_workers == 1 and is_script:
        leave_script(code, reason)
    leave_process(code, reason)


def leave_script(code: int, reason: str | None = None) -> NoReturn:
    """End a script as `sys.exit` does, from any of its threads.

    Args:
        code: the exit code.
        reason: the reason, which is logged if this is not the main thread.

    Raises:
        SystemExit: this is the main thread. In any other thread, it would end only that thread.
    """
    if threading.current_thread() is threading.main_thread():
        raise SystemExit(int(code))
    leave_process(code, reason)


def leave_process(code: int, reason: str | None) -> NoReturn:
    """Log the reason, if there is one, and end the process without waiting for other threads."""
    if reason is not None:
        if status_of(code) == "stopped":  # as requested: the reason says so
            log.info("%s (exit code %d)", reason, code, extra=OWN)
        else:
            log.error("failed: %s (exit code %d)", reason, code)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def status_of(code: int) -> str:
    """Return the status in result.json for an exit code: done, stopped or failed."""
    if code == ExitCode.DONE:
        return "done"
    return "stopped" if code - SIGNAL_CODES in STOP_SIGNALS else "failed"
