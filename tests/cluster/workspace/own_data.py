"""A user's own data set: a function that returns (train, test), each (inputs, labels)."""

import numpy as np

FEATURES = 5


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Points [n, 5] whose label is 1 where their first coordinate is above zero."""
    return _points(seed=1, count=600), _points(seed=2, count=101)


def _points(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    inputs = np.random.default_rng(seed).normal(size=(count, FEATURES)).astype(np.float32)
    return inputs, (inputs[:, 0] > 0).astype(np.int64)
