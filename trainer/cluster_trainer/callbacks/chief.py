"""Lets callbacks that write files write on the chief only."""

import logging
from collections.abc import Sequence
from typing import Any

import keras

# They only write, and never change training, so other workers can omit them.
WRITERS = (
    keras.callbacks.CSVLogger,
    keras.callbacks.TensorBoard,
    keras.callbacks.RemoteMonitor,
)
WRITES_NOTHING = "_cluster_trainer_writes_nothing"
log = logging.getLogger("trainer")


def for_worker(callbacks: Sequence[Any], *, is_chief: bool, keeps: bool) -> list[Any]:
    """Return a fit's callbacks as this worker needs them, in the same order.

    Args:
        callbacks: the user's callbacks.
        is_chief: whether this worker is the chief, which writes.
        keeps: whether the image saves checkpoints of the fit.
    """
    return [_for_worker(one, is_chief=is_chief, keeps=keeps) for one in callbacks]


def _for_worker(callback: Any, *, is_chief: bool, keeps: bool) -> Any:
    if isinstance(callback, keras.callbacks.BackupAndRestore) and keeps:
        log.info("BackupAndRestore is removed: the image's own checkpoints replace it")
        return keras.callbacks.Callback()
    if is_chief:
        return callback
    if isinstance(callback, WRITERS):
        return keras.callbacks.Callback()
    if isinstance(callback, keras.callbacks.ModelCheckpoint):
        return _deciding_only(callback)
    return callback


def _deciding_only(callback: keras.callbacks.ModelCheckpoint) -> keras.callbacks.ModelCheckpoint:
    if getattr(callback, WRITES_NOTHING, False):  # from an earlier attempt of this process
        return callback
    setattr(callback, WRITES_NOTHING, True)
    set_model = callback.set_model
    callback.set_model = lambda model: set_model(_Unsaved(model))
    return callback


class _Unsaved:
    """A stand-in for a model, whose `save` and `save_weights` write nothing."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def save(self, *_: Any, **__: Any) -> None:
        """Write nothing."""

    save_weights = save
