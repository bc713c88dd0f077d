"""A process that was forked after TensorFlow had begun: a compiled function never ends in it.

A fork copies the thread that calls it, and none of TensorFlow's. What runs eagerly needs none.
"""

import threading
from typing import Any

import tensorflow as tf

from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.process.exit_code import judge, leave_process, tell

PROBE_SECONDS = 20.0


def end_if_stuck(model: Any) -> None:
    """End a process that lacks TensorFlow's threads (78), if a function does not end in it.

    Args:
        model: is to be trained.
    """
    if model.run_eagerly or _functions_end(PROBE_SECONDS):
        return
    accepted = "a process that was started, or forked before its parent used TensorFlow"
    advice = (
        "A fork has none of the parent's threads, so training would hang. Use "
        '`multiprocessing.get_context("spawn")`, or let the parent make no model and train nothing '
        "before it forks."
    )
    received = "a process that was forked after its parent had used TensorFlow"
    error = ConfigurationError([Problem("fit", received, accepted, advice)])
    tell(error, 1)
    leave_process(*judge(error, 1))  # an ordinary end would wait for the function


def _functions_end(seconds: float) -> bool:
    ended = threading.Event()

    def call() -> None:
        tf.function(lambda ones: tf.reduce_sum(ones * ones))(tf.ones([2]))
        ended.set()

    threading.Thread(target=call, daemon=True).start()
    return ended.wait(seconds)
