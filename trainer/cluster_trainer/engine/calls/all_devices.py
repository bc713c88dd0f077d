"""Runs Keras's calls on all devices of the machine if a script has chosen none."""

import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives import local_devices
from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.engine.calls.announced import own_functions
from cluster_trainer.engine.calls.in_step import average
from cluster_trainer.engine.predictions import are_few
from cluster_trainer.engine.replicas import copies, statistics, step_context
from cluster_trainer.engine.replicas.copies import Held, may_be_copied
from cluster_trainer.private import keras_names, tensorflow_names

log = logging.getLogger("trainer")


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.calls: list[Held] = []


_of_thread = _OfThread()


def on_all(
    method: Callable[..., Any],
    strategy: tf.distribute.Strategy,
    model: Any,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> Any:
    """Run a model's method on all devices, unless the script has chosen devices or a strategy.

    A `predict` of few rows runs on one device, because dividing them would take longer.
    """
    if not _is_plain(model, strategy) or _predicts_few(
        method, strategy, model, arguments, keywords
    ):
        return method(model, *arguments, **keywords)
    with _held(model, strategy):
        try:
            result = method(model, *arguments, **keywords)
        except (Exception, SystemExit):
            if not _of_thread.calls[1:] and ring_of(strategy) is None:
                _tell_of_one(strategy.extended.worker_devices)
            raise
        if ring_of(strategy) is None and statistics.are_changed(model):  # a ring has averaged them
            average(model)
        return result


def _predicts_few(
    method: Callable[..., Any],
    strategy: tf.distribute.Strategy,
    model: Any,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> bool:
    is_within = _of_thread.calls or keras_names.strategy_given(model) is strategy
    if is_within or not method.__name__.startswith("predict"):
        return False
    given = inspect.signature(method).bind(model, *arguments, **keywords).arguments
    return are_few(given.get("x"))


@cache
def _tell_of_one(devices: tuple[str, ...]) -> None:
    log.warning(
        "this failed on %d devices of this machine. TRAINER_DEVICES=%s trains on one",
        len(devices),
        devices[0].rpartition("device:")[2],
    )


def _is_plain(model: Any, strategy: tf.distribute.Strategy) -> bool:
    """Tell whether the script has left the model's strategy and devices to the engine."""
    if keras_names.strategy_given(model) is strategy:  # within another call
        return True
    return (
        keras_names.strategy_given(model) is None
        and not tf.distribute.has_strategy()
        and not own_functions(model)
        and may_be_copied(model, strategy)
    )


@contextmanager
def _held(model: Any, strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Place a model in a strategy within the context."""
    held, calls = Held(model, strategy), _of_thread.calls
    try:
        held.hold()
        calls.append(held)
        try:
            yield
        finally:
            calls.pop()
            (calls[-1] if calls else held).hold_new(held.new())
    finally:
        held.release()


def see_strategy(optimizer: Any, made_in: tf.distribute.Strategy) -> tf.distribute.Strategy:
    """Return the strategy that holds an optimizer's variables now, by default its own."""
    current = tf.distribute.get_strategy()
    if local_devices.is_of_all(current):
        return current
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    counter = keras_names.counter_if_made(optimizer)
    if isinstance(counter, tensorflow_names.DistributedVariable):
        found: tf.distribute.Strategy = counter.distribute_strategy
        return found if local_devices.is_of_all(found) else made_in
    return made_in


def telling_of_raw(assign: Callable[..., Any]) -> Callable[..., Any]:
    """Return a variable's `assign` that reaches all devices, or warns if they share the variable.

    A callback may know a variable by another name than the model does, and so assign to the first
    device's copy. Outside of steps, the others then get its value.
    """

    @wraps(assign)
    def assign_and_tell(self: Any, *arguments: Any, **keywords: Any) -> Any:
        is_ours = step_context.is_shared() and local_devices.is_of_all(tf.distribute.get_strategy())
        if is_ours and not tensorflow_names.is_copy(self):
            _warn_of_shared(self.name)
        result = assign(self, *arguments, **keywords)
        if tf.executing_eagerly() and not (
            step_context.is_shared() or tf.distribute.has_strategy()
        ):
            copies.assigned(self)
        return result

    return assign_and_tell


@cache
def _warn_of_shared(name: str) -> None:
    log.warning(
        "A step assigns to the variable %s, which belongs neither to the model nor to its "
        "optimizer: each device assigns to it, so that its value depends on their number. Make it "
        "an attribute of the model or of a layer, or train on one device: TRAINER_DEVICES",
        name,
    )
