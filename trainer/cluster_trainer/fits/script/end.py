"""The end of a script: the meeting with the other workers, or the end of a stalled process."""

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
    """Meet the other workers at the end of a script, if it ends well; tell whether it does.

    If another one has failed, or was killed, the process ends with 75: that worker is restarted,
    and needs the others.

    Args:
        workers: this one and the others.
        last: makes the call.
        has_failed: whether something has, in spite of which the script has come here.
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
    """End a process whose present call takes far too long.

    Args:
        tell: notes the exit code and the reason.
    """
    code, reason = STALLED.code, STALLED.reason or ""
    # A hanging disk may be the cause, and must not block here.
    last = Thread(target=tell, args=(code, reason), daemon=True)
    last.start()
    last.join(LAST_WORDS_SECONDS)
    leave_process(code, reason)
