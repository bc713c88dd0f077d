"""Calls of Keras's that compute on all devices of the machine, where a script has named none."""

import inspect
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives import local_devices
from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.engine.calls.announced import own_functions
from cluster_trainer.engine.calls.in_step import average
from cluster_trainer.engine.predictions import are_few
from cluster_trainer.engine.replicas import statistics, step_context
from cluster_trainer.engine.replicas.copies import Held, may_be_copied
from cluster_trainer.private import keras_names, tensorflow_names

log = logging.getLogger("trainer")


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.calls: list[Held] = []


_of_thread = _OfThread()


def on_all(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call of a model that computes on all devices, if the script has chosen no other way.

    Few rows are predicted on one: to share them out would take longer.
    """
    signature = inspect.signature(method) if method.__name__.startswith("predict") else None

    @wraps(method)
    def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        strategy = local_devices.strategy() if local_devices.are_wanted() else None
        if strategy is None or not _is_plain(self, strategy):
            return method(self, *arguments, **keywords)
        is_within = _of_thread.calls or keras_names.strategy_given(self) is strategy
        if signature and not is_within:
            rows = signature.bind(self, *arguments, **keywords).arguments.get("x")
            if are_few(rows):
                return method(self, *arguments, **keywords)
        with _held(self, strategy):
            result = method(self, *arguments, **keywords)
            if ring_of(strategy) is None and statistics.are_changed(self):  # else they have been
                average(self)
            return result

    return run


def _is_plain(model: Any, strategy: tf.distribute.Strategy) -> bool:
    """Tell whether a model is in no strategy of the script's, and on no device of its choice."""
    if keras_names.strategy_given(model) is strategy:  # this is a call within another one
        return True
    return (
        keras_names.strategy_given(model) is None
        and not tf.distribute.has_strategy()
        and not own_functions(model)
        and may_be_copied(model, strategy)
    )


@contextmanager
def _held(model: Any, strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Let a model be one of a strategy's for what is done inside."""
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
    """Return the strategy that an optimizer's variables are in now, whatever it was made in."""
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
    """Return a variable's `assign` that tells of one which all devices share."""

    @wraps(assign)
    def assign_and_tell(self: Any, *arguments: Any, **keywords: Any) -> Any:
        is_ours = step_context.is_shared() and local_devices.is_of_all(tf.distribute.get_strategy())
        if is_ours and not tensorflow_names.is_copy(self):
            _warn_of_shared(self.name)
        return assign(self, *arguments, **keywords)

    return assign_and_tell


@cache
def _warn_of_shared(name: str) -> None:
    log.warning(
        "A step assigns to the variable %s, which belongs neither to the model nor to its "
        "optimizer: each device assigns to it, so that its value depends on their number. Make it "
        "an attribute of the model or of a layer, or train on one device: TRAINER_DEVICES",
        name,
    )
