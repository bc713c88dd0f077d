"""Wraps calls on one batch, and calls that read a model outside of a `fit`."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.engine import running, variable_reads
from cluster_trainer.engine.calls.in_step import average, keeps_in_step
from cluster_trainer.engine.data.again import Again
from cluster_trainer.engine.failed_step.explained import explained
from cluster_trainer.engine.replicas import statistics, step_context
from cluster_trainer.engine.steps import as_tensor

# (a function that runs the call, the strategy of its model) -> the call's result
AroundOther = Callable[[Callable[[], Any], tf.distribute.Strategy], Any]


def as_tensors(batch: Any) -> Any:
    """Return a user's batch, for example of pandas objects, as tensors for a step."""
    return keras.tree.map_structure(as_tensor, batch)


def average_before(model: Any) -> None:
    """Average a model's statistics before it is read."""
    call = running.current()
    if not (call.is_fit and model not in call.alike and ring_of(model.distribute_strategy)):
        average(model)  # otherwise `alike` does it, once all workers are known to have the model


def on_batch(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call on one batch that averages statistics, and explains a failure.

    Over a ring, statistics are averaged after each training step, because the next read may happen
    on this worker alone. Without a ring, they are averaged before a read, if steps have changed
    them.
    """
    signature = inspect.signature(method)
    trains = method.__name__ == "train_on_batch"

    @wraps(method)
    def call_on_batch(self: Any, *arguments: Any, **keywords: Any) -> Any:
        def again() -> Again:
            given = signature.bind(self, *arguments, **keywords).arguments
            parts = [given.get(name) for name in ("x", "y", "sample_weight")]
            return Again([as_tensors(keras.utils.pack_x_y_sample_weight(*parts))])

        with process_ring.failure_told(), explained(self, method.__name__, again):
            if not trains and statistics.are_changed(self):
                average_before(self)
            result = method(self, *arguments, **keywords)
            if trains and ring_of(self.distribute_strategy):
                average(self)
            return result

    return call_on_batch


def run_by(method: Callable[..., Any], around: AroundOther) -> Callable[..., Any]:
    """Return a call other than `fit` that `around` runs, unless it is within a `fit`."""

    @wraps(method)
    def run_other(self: Any, *arguments: Any, **keywords: Any) -> Any:
        run = partial(method, self, *arguments, **keywords)
        if running.is_in_fit():
            return run()
        variable_reads.note(self)
        with variable_reads.unheard():
            if not keeps_in_step(self.distribute_strategy):
                return run()
            with step_context.outside():  # of the body of a script's own loop
                return around(run, self.distribute_strategy)

    return run_other
