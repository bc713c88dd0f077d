"""Finds the callbacks that may stop a fit within an epoch, so that the workers agree on it."""

from collections.abc import Sequence
from typing import Any

import keras

from cluster_trainer.on_jax.workers.cluster import JaxWorkers

NO_USERS = frozenset({"keras", "cluster_trainer"})
"""The packages whose callbacks and hooks are not a user's own."""
HOOKS = ("on_train_batch_end", "on_train_batch_begin", "on_batch_end", "on_batch_begin")
BATCHES = "callbacks that see batches"


def is_of_user(callback: Any) -> bool:
    """Tell whether a callback's class is a user's own."""
    return _is_users(type(callback))


def asks_each_batch(workers: JaxWorkers, callbacks: Sequence[Any]) -> bool:
    """Tell whether the workers have to agree after each step whether to stop; all call this.

    They have to if any worker has a user's hook for batches, or if only some workers have Keras's
    `TerminateOnNaN`. If all workers have it, it gets the same loss on all of them.
    """
    ending = [one for one in callbacks if isinstance(one, keras.callbacks.TerminateOnNaN)]
    sees = workers.any(any(map(_sees_batches, callbacks)), BATCHES)
    return len(set(workers.gather(bool(ending), BATCHES))) > 1 or sees


def _sees_batches(callback: Any) -> bool:
    """Tell whether a callback has a user's own hook for each batch.

    The hook counts, not the class, because a LambdaCallback has a user's functions as attributes.
    """
    hooks = [getattr(callback, name, None) for name in HOOKS]
    return any(hook is not None and _is_users(hook) for hook in hooks)


def _is_users(thing: Any) -> bool:
    package = str(getattr(thing, "__module__", "")).partition(".")[0]
    return package not in NO_USERS
