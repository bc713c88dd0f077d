"""Finds variables whose values are no longer alike on all workers of a ring, and warns of them.

The workers of a ring take equal steps from equal values. So values that differ afterwards were
changed by something that only some workers do: a callback of the chief, a random number without a
seed, an assignment behind `if is_chief`. Training would continue with models that differ.
"""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.problems import listed

TOLERANCE = 1e-4
"""The largest relative difference of fractions that rounding may explain: processors of two kinds
round differently in their last bits, and each worker updates its own copy."""
SHOWN = 3
WHAT = "sketches of values"
log = logging.getLogger("trainer")


def say(variables: Sequence[Any], ring: RenewableRing, when: str) -> list[Any]:
    """Warn of variables whose values differ by more than rounding; return them.

    All workers call this, and get the same variables.
    """
    mine = np.array([sketch(one) for one in variables], np.float64).reshape(-1, 2)
    everyone = ring.all_gather(mine.tobytes(), what=WHAT)
    rows = [np.frombuffer(one, np.float64).reshape(-1, 2) for one in everyone]
    if len({len(one) for one in rows}) > 1:
        return []  # some variables do not exist on all workers yet
    tolerances = np.array([_tolerance(one) for one in variables])
    found = [differ(rows[0], one, tolerances) for one in rows]
    is_parted = np.any(found, axis=0)
    parted = [one for one, is_one in zip(variables, is_parted, strict=True) if is_one]
    if parted:
        names = [getattr(one, "path", one.name) for one in parted]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        workers = [f"worker-{place}" for place in ring.members]
        others = [name for name, one in zip(workers, found, strict=True) if one.any()]
        _warn(when, ", ".join(names[:SHOWN]) + more, listed(others), workers[0])
    return parted


def sketch(variable: Any) -> tuple[float, float]:
    """Return two numbers that tell values of a variable apart without sending them.

    They are the sum, divided by the root of the number of elements, and the Euclidean norm. Each
    changes by at most the distance between two values. Strings give (0, 0).
    """
    value = value_of(variable).reshape(-1)
    if value.dtype.kind in "OSU":
        return 0.0, 0.0
    if value.dtype not in (np.float32, np.float64):
        value = np.abs(value) if value.dtype.kind == "c" else value.astype(np.float64)
    total = value.sum(dtype=np.float64) / np.sqrt(max(1, value.size))
    return float(total), float(np.linalg.norm(value))


def value_of(variable: Any) -> np.ndarray:
    """Return a variable's value without a copy."""
    value = held(variable)
    if isinstance(value, tf.Variable):
        value = tf.raw_ops.ReadVariableOp(resource=value.handle, dtype=value.dtype)
    return np.asarray(value)


def held(variable: Any) -> Any:
    """Return TensorFlow's variable, which may be the value of one of Keras's."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def differ(first: np.ndarray, other: np.ndarray, tolerances: np.ndarray) -> np.ndarray:
    """Tell which variables have other values on another worker.

    Args:
        first: the sketches of one worker, float64 [variables, 2].
        other: those of another worker, of the same shape.
        tolerances: the largest relative difference of each variable, float64 [variables].

    Returns:
        bool [variables]; values that are finite on neither worker are equal.
    """
    norm = np.maximum(first[:, 1], other[:, 1])
    with np.errstate(invalid="ignore"):
        is_near = np.abs(first - other) <= (tolerances * norm)[:, None]
    are_finite = np.isfinite(first), np.isfinite(other)
    is_same = (is_near & are_finite[0] & are_finite[1]) | ~(are_finite[0] | are_finite[1])
    is_other: np.ndarray = ~is_same.all(axis=1)
    return is_other


def _tolerance(variable: Any) -> float:
    """Return TOLERANCE, or 0 for whole numbers, such as the state of a random generator."""
    return TOLERANCE if value_of(variable).dtype.kind not in "biu" else 0.0


@cache
def _warn(when: str, names: str, others: str, first: str) -> None:
    log.warning(
        "%s: %s on %s differ from those on %s. Something changes them on some workers only, such "
        "as a callback or an assignment that not all workers have. All workers continue with the "
        "values of %s. Let all workers make the same changes",
        *(when, names, others, first, first),
    )
