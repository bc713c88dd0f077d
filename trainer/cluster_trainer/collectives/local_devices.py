"""The devices of this machine on which a plain script's models are trained, if there are several.

A script that makes a strategy of tf.distribute itself decides by that.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import tensorflow as tf

from cluster_trainer.private import tensorflow_names

Form = Callable[[], Sequence[str]]


@dataclass
class _OfProcess:
    """What this process has: a strategy, or what tells its devices once somebody asks."""

    strategy: tf.distribute.Strategy | None = None
    form: Form | None = None
    on_forming: Callable[[], None] = lambda: None
    forming: threading.Lock = field(default_factory=threading.Lock)


_of_process = _OfProcess()


def offer(form: Form, on_forming: Callable[[], None] = lambda: None) -> None:
    """Let models be trained on all of some devices.

    Args:
        form: returns TensorFlow's names of them. It is called once, when the first model is
            trained, evaluated or asked for predictions.
        on_forming: is called after that if they are several.
    """
    _of_process.strategy, _of_process.form, _of_process.on_forming = None, form, on_forming


def withdraw() -> None:
    """Leave the devices to the strategies that are made from now on."""
    _of_process.strategy = _of_process.form = None


def are_wanted() -> bool:
    """Tell whether there may be several devices; costs nothing where there are not."""
    return _of_process.strategy is not None or _of_process.form is not None


def strategy() -> tf.distribute.Strategy | None:
    """Return the strategy with a replica on each device; None where there is one device."""
    if _of_process.form is not None:
        with _of_process.forming:
            _form()
    return _of_process.strategy


def _form() -> None:
    if (form := _of_process.form) is None:  # another thread has been here
        return
    devices = form()
    _of_process.form = None
    if len(devices) > 1:
        _of_process.strategy = tensorflow_names.OfferedStrategy([*devices])
        _of_process.on_forming()


def is_of_all(strategy: Any) -> bool:
    """Tell whether a strategy is the one that was offered."""
    return isinstance(strategy, tensorflow_names.OfferedStrategy)


def withdrawing(initialize: Callable[..., None]) -> Callable[..., None]:
    """Return a strategy's constructor that ends the offer, unless the strategy is ours."""

    @wraps(initialize)
    def withdraw_and_initialize(self: Any, *arguments: Any, **keywords: Any) -> None:
        if not isinstance(
            self, (tensorflow_names.DefaultStrategy, tensorflow_names.OfferedStrategy)
        ):
            withdraw()
        initialize(self, *arguments, **keywords)

    return withdraw_and_initialize
