"""Renews an optimizer's copies of weights, if callbacks have changed the weights since.

An optimizer such as ScheduleFreeAdamW copies the weights when it is built. On one device that is
just before the first step. Several replicas need its variables earlier, and callbacks may still
load weights after that, for example in `on_epoch_begin`.
"""

import logging
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from cluster_trainer.private import keras_names

log = logging.getLogger("trainer")
# Optimizers that hold copies and have taken no step, with the variables for which they were built.
_copying: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()


def note(optimizer: Any, weights: Sequence[Any]) -> None:
    """Note whether an optimizer that was just built holds copies of weights."""
    if any(_is_copy(one, weights) for one in optimizer.variables):
        _copying[optimizer] = [*weights]


def _is_copy(variable: Any, weights: Sequence[Any]) -> bool:
    """Tell whether a variable has the values of one of the weights, and not only zeros."""
    alike = [one for one in weights if tuple(one.shape) == tuple(variable.shape)]
    if not alike or not tf.reduce_any(tf.cast(variable.value, tf.bool)):
        return False
    own = tf.convert_to_tensor(variable.value)
    return any(bool(tf.reduce_all(own == tf.cast(one, own.dtype))) for one in alike)


def renew(model: Any) -> None:
    """Let a model's optimizers begin with the weights that it has before the first step."""
    if not _copying:  # looking for a model's optimizers takes time
        return
    for optimizer in keras_names.optimizers_of(model):
        if weights := _copying.pop(optimizer, None):
            _renew(model, optimizer, weights)


def _renew(model: Any, optimizer: Any, weights: Sequence[Any]) -> None:
    """Let an optimizer begin with the present weights.

    Another optimizer of the same settings, built now, shows the values to begin with.
    """
    counter = keras_names.step_counter(getattr(optimizer, "inner_optimizer", optimizer))
    if tf.convert_to_tensor(counter.value) > 0:
        return
    try:
        with model.distribute_strategy.scope():
            another = type(optimizer).from_config(optimizer.get_config())
            another.build(weights)
            for one, given in zip(optimizer.variables, another.variables, strict=True):
                one.assign(given.value)
    except Exception as error:  # noqa: BLE001  a user's own optimizer
        log.warning(
            "The optimizer %s copies the weights when it is built. If a callback has changed them "
            "after `on_train_begin`, it trains from the weights of before: %s",
            *(optimizer.name, error),
        )
