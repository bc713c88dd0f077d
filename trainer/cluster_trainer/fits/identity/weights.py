"""A summary of a model's weights at the beginning of a fit: a few numbers per variable."""

from collections.abc import Sequence
from typing import Any

import numpy as np

SAMPLED = 4096
"""The approximate number of sampled elements of a variable; a whole model would take seconds."""
RELATIVE, ABSOLUTE = 1e-3, 1e-6
"""Tolerated differences: threads may add in another order, and round differently."""

Summary = list[list[float]]
"""For each variable its sample's size, first and last value, mean and standard deviation."""


def summary_of(arrays: Sequence[np.ndarray]) -> Summary:
    """Return a summary of variables' values; see Summary.

    Args:
        arrays: a sample of each variable's values, [n]; see `sampled`.
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


def are_alike(first: Summary | None, second: Summary | None) -> bool:
    """Tell whether two fits began with the same weights, up to rounding.

    Args:
        first: the summary of one fit's weights; None: the model had no variables yet.
        second: the summary of the other's.
    """
    if first is None or second is None or len(first) != len(second):
        return False
    pairs = zip(first, second, strict=True)
    return all(bool(np.allclose(a, b, RELATIVE, ABSOLUTE)) for a, b in pairs)
