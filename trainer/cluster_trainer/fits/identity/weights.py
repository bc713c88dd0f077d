"""What a model's weights were when a fit began, in a few numbers for each variable."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

SAMPLED = 4096
"""Elements of a variable that are looked at; all weights of a large model would take seconds."""
RELATIVE, ABSOLUTE = 1e-3, 1e-6
"""Differences that are rounding, as of sums that threads have added in another order."""

Summary = list[list[float]]
"""Of each variable: its size, first and last value, mean and standard deviation of a sample."""


class Likeness(Enum):
    """How the weights of two beginnings compare."""

    SAME = "equal, but for rounding"
    DRAWN = "equal where they are not drawn at random"
    OTHER = "others"


def summary_of(arrays: Sequence[np.ndarray]) -> Summary:
    """Return a summary of variables' values; see Summary.

    Args:
        arrays: of each variable a sample of its values; see `sampled`.
    """
    return [_numbers(np.asarray(array, np.float64)) for array in arrays]


def _numbers(sample: np.ndarray) -> list[float]:
    if not sample.size:
        return [0.0] * 5
    found = [sample.size, sample[0], sample[-1], sample.mean(), sample.std()]
    return [float(number) for number in np.nan_to_num(found)]


def sampled(values: Any) -> np.ndarray:
    """Return a sample of a one-dimensional array or tensor: elements at equal distances."""
    step = max(1, int(values.shape[0]) // SAMPLED)
    return np.asarray(values[::step])


def likeness(first: Summary | None, second: Summary | None) -> Likeness:
    """Compare two beginnings.

    A script without a seed draws other weights at each start, but the same where it sets them:
    biases to 0, scales to 1. Weights that were trained, or loaded, differ there, too.

    Args:
        first: of one; None: the model had no variables yet, so that all of them are to be drawn.
        second: of the other.
    """
    if first is None or second is None or len(first) != len(second):
        return Likeness.DRAWN
    close = [bool(np.allclose(a, b, RELATIVE, ABSOLUTE)) for a, b in zip(first, second)]  # noqa: B905
    if all(close):
        return Likeness.SAME
    pairs = zip(close, first, second, strict=True)
    drawn = all(is_close or (_may_be_drawn(a) and _may_be_drawn(b)) for is_close, a, b in pairs)
    return Likeness.DRAWN if drawn else Likeness.OTHER


def _may_be_drawn(numbers: list[float]) -> bool:
    """Tell whether values may come from a generator: they vary, or it is one, neither 0 nor 1."""
    size, value, *_, deviation = numbers
    return deviation > 0 if size > 1 else value not in {0.0, 1.0}
