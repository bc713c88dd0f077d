"""What calls on one batch, and looks at a model from outside of a `fit`, get besides."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.collectives import group
from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.engine import reads, running
from cluster_trainer.engine.calls.in_step import average, keeps_in_step
from cluster_trainer.engine.fixed_size import explained
from cluster_trainer.engine.replicas import statistics
from cluster_trainer.engine.steps import as_tensor

# (run it, the strategy of its model) -> what it returns
AroundOther = Callable[[Callable[[], Any], tf.distribute.Strategy], Any]


def as_tensors(batch: Any) -> Any:
    """Return what a user gives for a batch, which may be pandas', as a step gets it."""
    return keras.tree.map_structure(as_tensor, batch)


def with_averages(method: Callable[..., Any], *, in_loop: bool = False) -> Callable[..., Any]:
    """Average a model's statistics before it is looked at.

    Args:
        method: looks at it.
        in_loop: whether it may be called for each batch: only if steps have changed them.
    """

    @wraps(method)
    def averaged(self: Any, *arguments: Any, **keywords: Any) -> Any:
        call = running.current()
        is_due = not in_loop or statistics.are_changed(self)
        is_alikes = call.is_fit and self not in call.alike and ring_of(self.distribute_strategy)
        if is_due and not is_alikes:
            average(self)  # else `alike` does it, once it is known that all workers have it
        return method(self, *arguments, **keywords)

    return averaged


def averaging(train_on_batch: Callable[..., Any]) -> Callable[..., Any]:
    """Average a model's statistics after a step, over a ring.

    Whatever looks at them next may be called by this worker alone.
    """

    @wraps(train_on_batch)
    def train_and_average(self: Any, *arguments: Any, **keywords: Any) -> Any:
        logs = train_on_batch(self, *arguments, **keywords)
        if ring_of(self.distribute_strategy):
            average(self)
        return logs

    return train_and_average


def with_failures_told(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call on one batch that tells the others of a failure, and explains it."""
    signature = inspect.signature(method)

    @wraps(method)
    def failing(self: Any, *arguments: Any, **keywords: Any) -> Any:
        def batch() -> Any:
            given = signature.bind(self, *arguments, **keywords).arguments
            parts = [given.get(name) for name in ("x", "y", "sample_weight")]
            return as_tensors(keras.utils.pack_x_y_sample_weight(*parts))

        with group.failure_told(), explained(self, method.__name__, batch):
            return method(self, *arguments, **keywords)

    return failing


def run_by(method: Callable[..., Any], around: AroundOther) -> Callable[..., Any]:
    """Return another call than `fit` that is run by a function from outside of the engine."""

    @wraps(method)
    def run_other(self: Any, *arguments: Any, **keywords: Any) -> Any:
        run = partial(method, self, *arguments, **keywords)
        if running.is_in_fit():
            return run()
        reads.note(self)
        with reads.unheard():
            if not keeps_in_step(self.distribute_strategy):
                return run()
            return around(run, self.distribute_strategy)

    return run_other
