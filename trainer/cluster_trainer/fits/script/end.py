"""Ends a script: lets it wait for the other workers, or ends a stalled process."""

import sys
from collections.abc import Callable
from threading import Thread
from typing import NoReturn

from cluster_trainer.collectives.workers import Workers
from cluster_trainer.fits.elastic_recovery import explained
from cluster_trainer.process.exit_code import judge, leave_process
from cluster_trainer.process.last_call import LastCall
from cluster_trainer.process.watch import STALLED

LEAVING_SECONDS = 60.0
LAST_WORDS_SECONDS = 2.0


def meets_the_others(workers: Workers, last: LastCall, *, has_failed: bool = False) -> bool:
    """Wait for the other workers at the end of a script; return False if the script has failed.

    If another worker has failed or was killed, the process ends with code 75, because that worker
    is restarted, and needs the others.

    Args:
        workers: the workers that train together.
        last: makes the last call, with a time limit.
        has_failed: whether a call has failed, and the script has come to its end all the same.
    """
    if getattr(sys, "last_value", None) is not None:
        workers.fail("its script has failed")
        return False
    if has_failed:
        return False
    met: list[Exception | None] = []
    last.make(lambda: met.append(workers.part()), LEAVING_SECONDS)
    if not met:
        workers.leave()
    elif met[0]:
        leave_process(*judge(explained(met[0]), workers.count))
    return True


def stalled(tell: Callable[[int, str], object]) -> NoReturn:
    """End a process whose current call has exceeded its time limit.

    Args:
        tell: notes the exit code and the reason.
    """
    code, reason = STALLED.code, STALLED.reason or ""
    # A hanging disk may be the cause, and must not block here.
    last = Thread(target=tell, args=(code, reason), daemon=True)
    last.start()
    last.join(LAST_WORDS_SECONDS)
    leave_process(code, reason)
