"""What a script calls beside `fit`: evaluate, predict, and training batch by batch.

Nothing is kept of these. They end as a `fit` does where a peer is lost, and a script that calls
nothing else does not leave before the other workers either.
"""

import atexit
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.fits import script_fits
from cluster_trainer.fits.lost_worker import explained
from cluster_trainer.fits.script_log import begin_log
from cluster_trainer.problems import ExitCode
from cluster_trainer.process.last_call import LastCall
from cluster_trainer.process.lifecycle import judge, leave_process, tell
from cluster_trainer.settings.task import from_environment

log = logging.getLogger("trainer")


class Calls:
    """The calls of this process, and its end.

    Args:
        strategy: of the first call.
        num_workers: how many workers the cluster has.
    """

    def __init__(self, strategy: tf.distribute.Strategy, num_workers: int) -> None:
        self.has_failed = False
        self._strategy, self._pid, self._last = strategy, os.getpid(), LastCall()
        # A ring's own end is after this one, if it is there before.
        if workers_of(strategy).count == 1 < num_workers and not script_fits.has_begun():
            log.warning(
                "evaluate, predict, train_on_batch and the like run on this worker alone: the "
                "model was not made in the scope of a MultiWorkerMirroredStrategy"
            )
        atexit.register(self._leave)

    def _leave(self) -> None:
        """Let no worker leave before the others, unless a `fit` has seen to that, or all is over.

        See script_fits.py: one that has failed leaves at once.
        """
        if self._pid == os.getpid() and not script_fits.has_begun():
            workers = workers_of(self._strategy)
            script_fits.meets_the_others(workers, self._last, has_failed=self.has_failed)


_calls: Calls | None = None


def call(
    run: Callable[[], Any], strategy: tf.distribute.Strategy, environ: Mapping[str, str]
) -> Any:
    """Return what a call of the script's returns; where a peer is lost, end the process (75).

    Args:
        run: the call.
        strategy: of its model.
        environ: TF_CONFIG, which names several workers, and what the log looks like.
    """
    global _calls  # noqa: PLW0603  they are this process's
    try:
        if _calls is None:
            begin_log(environ)
            _calls = Calls(strategy, from_environment(environ).num_workers)
        result = run()
    except BaseException as error:
        if _calls is not None:
            _calls.has_failed = True
        if isinstance(error, Exception):
            end_unless_crashed(error, environ)
        raise
    _calls.has_failed = False  # the script has got over an earlier one
    return result


def end_unless_crashed(error: Exception, environ: Mapping[str, str]) -> None:
    """End the process as the trainer would, unless the error is the script's own affair."""
    error = explained(error)
    num_workers = from_environment(environ).num_workers
    code, reason = judge(error, num_workers)
    if code != ExitCode.CRASHED:
        tell(error, num_workers)
        leave_process(code, reason)
