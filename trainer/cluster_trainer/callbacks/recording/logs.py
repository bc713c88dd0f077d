"""Extracts numbers for people: those in a fit's logs, and the learning rate."""

from typing import Any

import keras
import numpy as np

from cluster_trainer.engine.replicas.optimizers import schedules

KINDS = "fiub"
"""NumPy's kinds: floating-point numbers, integers, and booleans, which count as 0 and 1."""
MAX_NUMBERS = 100
"""The largest size of a metric that is recorded; checkpoints contain the lines of all epochs."""


def numbers_in(value: Any) -> np.ndarray | None:
    """Return a value as an array of numbers; None: it is something else."""
    try:
        array = np.asarray(value)
    except Exception:  # noqa: BLE001  a user's own class may raise anything
        return None
    if array.dtype.kind not in KINDS:
        return None
    return array.astype(np.int64) if array.dtype.kind == "b" else array


def present_rate(model: Any) -> float | None:
    """Return the learning rate of the next step; None if there is none, or a schedule fails.

    A schedule that counts its calls does not count this one.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return None
    try:
        with schedules.unchanged(model):
            rate = getattr(optimizer, "learning_rate", None)
            return None if rate is None else float(keras.ops.convert_to_numpy(rate))
    except Exception:  # noqa: BLE001  a failing schedule must not end the training
        return None
