"""Offers the devices of this machine to a plain script's models, if there are several devices.

A script that creates a strategy of tf.distribute has chosen its devices. This ends the offer.
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
    """This process's strategy, or the function that finds its devices when they are needed."""

    strategy: tf.distribute.Strategy | None = None
    form: Form | None = None
    on_forming: Callable[[], None] = lambda: None
    forming: threading.Lock = field(default_factory=threading.Lock)


_of_process = _OfProcess()


def offer(form: Form, on_forming: Callable[[], None] = lambda: None) -> None:
    """Offer devices to models.

    Args:
        form: returns TensorFlow's names of the devices. It is called once, when the first model
            trains, evaluates or predicts.
        on_forming: is called after that if there are several devices.
    """
    _of_process.strategy, _of_process.form, _of_process.on_forming = None, form, on_forming


def withdraw() -> None:
    """End the offer, and leave the devices to the script's own strategies."""
    _of_process.strategy = _of_process.form = None


def are_wanted() -> bool:
    """Tell whether there may be several devices, without looking for them."""
    return _of_process.strategy is not None or _of_process.form is not None


def strategy() -> tf.distribute.Strategy | None:
    """Return the strategy with a replica on each device; None: there is only one, or no offer."""
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
    """Return a strategy's constructor that ends the offer if a script calls it."""

    @wraps(initialize)
    def withdraw_and_initialize(self: Any, *arguments: Any, **keywords: Any) -> None:
        if not isinstance(
            self, (tensorflow_names.DefaultStrategy, tensorflow_names.OfferedStrategy)
        ):
            withdraw()
        initialize(self, *arguments, **keywords)

    return withdraw_and_initialize
