"""Runs a script's calls besides `fit`: evaluate, predict, and training batch by batch.

They have no checkpoints. If a peer is lost, they end the process like a `fit`. A script that calls
nothing else also waits at its end until the other workers have come to theirs.
"""

import atexit
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.fits.elastic_recovery import explained
from cluster_trainer.fits.process_state import Process
from cluster_trainer.fits.program import Outcome
from cluster_trainer.fits.script.end import meets_the_others
from cluster_trainer.fits.script.log import begin_log
from cluster_trainer.process.exit_code import end_by
from cluster_trainer.process.last_call import LastCall
from cluster_trainer.settings.task import from_environment

log = logging.getLogger("trainer")


def call(
    process: Process,
    run: Callable[[], Any],
    strategy: tf.distribute.Strategy,
    environ: Mapping[str, str],
) -> Any:
    """Return the result of a script's call; if a peer is lost, end the process (75).

    Args:
        process: this process.
        run: makes the call.
        strategy: the strategy of its model.
        environ: the environment, with TF_CONFIG and the log's variables.
    """
    try:
        if process.calls is None:
            _begin(process, strategy, environ)
        result = run()
    except BaseException as error:
        if process.calls:
            process.calls = process.calls.after(error)
        if isinstance(error, Exception):
            end_unless_crashed(error, environ)
        raise
    process.calls = Outcome.WELL  # the script has handled the error of any earlier call
    return result


def _begin(process: Process, strategy: tf.distribute.Strategy, environ: Mapping[str, str]) -> None:
    begin_log(environ)
    num_workers = from_environment(environ).num_workers
    # If the ring existed before, its own end comes after this one.
    if workers_of(strategy).count == 1 < num_workers and process.script is None:
        log.warning(
            "evaluate, predict, train_on_batch and the like run on this worker alone: the "
            "model was not made in the scope of a MultiWorkerMirroredStrategy"
        )
    process.calls = Outcome.WELL
    atexit.register(_leave, process, strategy, LastCall().begin())


def _leave(process: Process, strategy: tf.distribute.Strategy, last: LastCall) -> None:
    """Wait for the other workers at the script's end, unless it has called `fit`, which does so.

    A worker that has failed leaves at once, as in `Script`. A forked process does nothing.
    """
    if process.pid == os.getpid() and process.script is None:
        has_failed = process.calls is not Outcome.WELL
        meets_the_others(workers_of(strategy), last, has_failed=has_failed)


def end_unless_crashed(error: Exception, environ: Mapping[str, str]) -> None:
    """End the process as the trainer would, unless the error is the script's own."""
    # In a script's own loop, TensorFlow's error does not say why the ring has failed.
    cause = explained(process_ring.failure_behind(error))
    end_by(cause, from_environment(environ).num_workers)
