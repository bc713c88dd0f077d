"""A callback that calls a function at its place among a fit's callbacks."""

from collections.abc import Callable
from typing import Any

import keras

HOOKS = (
    *("on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end"),
    *("on_test_begin", "on_test_end"),
)
BATCH_HOOKS = ("on_train_batch_begin", "on_train_batch_end")


class HookCallback(keras.callbacks.Callback):
    """Calls a function whenever Keras reaches its place among a fit's callbacks.

    Args:
        do: is called with the name of the hook.
        each_batch: whether to call it in the hooks of each training batch, too.
    """

    def __init__(self, do: Callable[[str], object], *, each_batch: bool) -> None:
        super().__init__()
        for name in (*HOOKS, *(BATCH_HOOKS if each_batch else ())):
            setattr(self, name, _calling(do, name))


def _calling(do: Callable[[str], object], name: str) -> Callable[..., None]:
    def hook(*_: Any, **__: Any) -> None:
        do(name)

    return hook
