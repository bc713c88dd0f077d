"""Ends a process that was forked after TensorFlow had begun, because compiled functions hang in it.

A fork copies only the thread that calls it, and none of TensorFlow's. Eager code needs none.
"""

import threading
from typing import Any

import tensorflow as tf

from cluster_trainer.private import tensorflow_names
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.process.exit_code import judge, leave_process, tell

PROBE_SECONDS = 20.0


class _OfProcess:
    """Whether this process may lack TensorFlow's threads; the first call finds out."""

    may_be_stuck = False


_of_process = _OfProcess()


def note_fork() -> None:
    """Note in a forked process whether TensorFlow had begun before the fork.

    It does no more than that, because it runs in every fork of a script.
    """
    _of_process.may_be_stuck = tensorflow_names.has_begun()


def end_if_stuck(model: Any, name: str) -> None:
    """End the process with code 78 if it lacks TensorFlow's threads: its calls would hang.

    Args:
        model: the model that is about to be called.
        name: the name of the call, such as `fit`.
    """
    if not _of_process.may_be_stuck or model.run_eagerly:
        return
    if _functions_end(PROBE_SECONDS):
        _of_process.may_be_stuck = False
        return
    accepted = "a process that was started, or forked before its parent used TensorFlow"
    advice = (
        "A fork has none of the parent's threads, so the call would hang. Use "
        '`multiprocessing.get_context("spawn")`, or let the parent make no model and train nothing '
        "before it forks."
    )
    received = "a process that was forked after its parent had used TensorFlow"
    error = ConfigurationError([Problem(name, received, accepted, advice)])
    tell(error, 1)
    leave_process(*judge(error, 1))  # an ordinary end would wait for the function


def _functions_end(seconds: float) -> bool:
    ended = threading.Event()

    def call() -> None:
        tf.function(lambda ones: tf.reduce_sum(ones * ones))(tf.ones([2]))
        ended.set()

    threading.Thread(target=call, daemon=True).start()
    return ended.wait(seconds)
