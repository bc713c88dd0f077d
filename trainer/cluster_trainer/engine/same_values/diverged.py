"""Finds variables whose values are no longer equal on all workers of a ring, and warns of them.

The workers of a ring take equal steps from equal values. So if values differ afterwards, only some
workers have changed them. Examples are a callback of the chief, a random number without a seed, and
an assignment behind `if is_chief`. Training would continue with different models.
"""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.engine.replicas.step_context import name_of, tensorflow_variable
from cluster_trainer.problems import listed
from cluster_trainer.settings.task import names_of

TOLERANCE = 1e-4
"""The largest relative difference of float32 that rounding may explain. Different kinds of
processors round differently in the last bits, and each worker updates its own copy."""
EPSILONS = 8
"""The same for types of fewer bits, as a multiple of the distance from 1 to the next number."""
EXACT = 1e-12
"""The same for whole numbers, whose sketches are rounded: the order of additions may differ."""
BLOCK = 4096
"""The number of elements in one sketch. It is small, so that a change of a few elements shows."""
BLOCKS_AT_ONCE = 64
SHOWN = 3
WHAT = "sketches of values"
log = logging.getLogger("trainer")
# The weights differ by place and are far from 0, so each element counts. All workers use the same.
_DRAWS = np.random.default_rng(0)
_WEIGHTS = _DRAWS.choice([-1.0, 1.0], BLOCK) * _DRAWS.uniform(0.5, 1.5, BLOCK)


def say(variables: Sequence[Any], ring: RenewableRing, when: str) -> list[Any]:
    """Warn of variables whose values differ by more than rounding; return them.

    All workers call this, and get the same variables.
    """
    sketches = [sketch(one) for one in variables]
    mine = np.concatenate([*sketches, np.empty((0, 2))])
    everyone = ring.all_gather(mine.tobytes(), what=WHAT)
    rows = [np.frombuffer(one, np.float64).reshape(-1, 2) for one in everyone]
    if len({len(one) for one in rows}) > 1:
        return []  # some variables do not exist on all workers yet
    sizes = [len(one) for one in sketches]
    tolerances = np.repeat([_tolerance(one) for one in variables], sizes)
    found = [differ(rows[0], one, tolerances) for one in rows]
    is_parted = np.any(found, axis=0)
    ends = np.cumsum(sizes)
    parted = [
        one
        for one, end, size in zip(variables, ends, sizes, strict=True)
        if is_parted[end - size : end].any()
    ]
    if parted:
        names = [*map(name_of, parted)]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        workers = names_of(ring.members)
        others = [name for name, one in zip(workers, found, strict=True) if one.any()]
        _warn(when, ", ".join(names[:SHOWN]) + more, listed(others), workers[0])
    return parted


def sketch(variable: Any) -> np.ndarray:
    """Return numbers that show whether a variable's values differ, without sending the values.

    They are a weighted sum and the Euclidean norm of each BLOCK of elements, float64 [blocks, 2].
    Strings have no sketch.
    """
    value = value_of(variable).reshape(-1)
    if value.dtype.kind in "OSU":
        return np.empty((0, 2))
    size = BLOCK * BLOCKS_AT_ONCE
    parts = [value[begin : begin + size] for begin in range(0, len(value), size)]
    return np.concatenate([*map(_sketch_of_blocks, parts), np.empty((0, 2))])


def _sketch_of_blocks(value: np.ndarray) -> np.ndarray:
    if value.dtype.kind == "c":
        value = value.real + np.pi * value.imag
    blocks = np.zeros((-(-len(value) // BLOCK), BLOCK))
    blocks.reshape(-1)[: len(value)] = value
    norms = np.sqrt(np.einsum("ij,ij->i", blocks, blocks))
    return np.stack([blocks @ _WEIGHTS, norms], axis=1)


def value_of(variable: Any) -> np.ndarray:
    """Return a variable's value; a value on a CPU is not copied."""
    value = tensorflow_variable(variable)
    if isinstance(value, tf.Variable):
        value = tf.raw_ops.ReadVariableOp(resource=value.handle, dtype=value.dtype)
    return np.asarray(value)


def differ(first: np.ndarray, other: np.ndarray, tolerances: np.ndarray) -> np.ndarray:
    """Tell which blocks have different values on another worker.

    Args:
        first: the sketches of one worker, float64 [blocks, 2].
        other: those of another worker, of the same shape.
        tolerances: the largest allowed difference of each block, relative to its norm, float64
            [blocks].

    Returns:
        bool [blocks]. Sketches that are finite on neither worker count as equal.
    """
    most = tolerances[:, None] * np.maximum(first, other)[:, 1:]
    with np.errstate(invalid="ignore"):
        is_near = np.abs(first - other) <= most
    are_finite = np.isfinite(first), np.isfinite(other)
    is_same = (is_near & are_finite[0] & are_finite[1]) | ~(are_finite[0] | are_finite[1])
    is_other: np.ndarray = ~is_same.all(axis=1)
    return is_other


def _tolerance(variable: Any) -> float:
    """Return the relative difference that rounding may cause: of integers, in their sketch only."""
    dtype = value_of(variable).dtype
    if dtype.kind in "biuOSU":
        return EXACT
    epsilon = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    return max(TOLERANCE, EPSILONS * epsilon)


@cache
def _warn(when: str, names: str, others: str, first: str) -> None:
    log.warning(
        "%s: %s on %s differ from those on %s. Something changes them on some workers only, such "
        "as a callback or an assignment. All workers continue with the values of %s. If you do not "
        "mean that, let all workers make the same changes",
        *(when, names, others, first, first),
    )
