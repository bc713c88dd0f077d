"""Takes and restores the random state of a process: Python's, NumPy's and Keras's."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from cluster_trainer.private import any_backend


@contextmanager
def unchanged() -> Iterator[None]:
    """Restore the random state at the end."""
    before = taken()
    try:
        yield
    finally:
        put_back(before)


def taken() -> dict[str, Any]:
    """Return the random state."""
    version, numbers, gauss = random.getstate()
    generator = any_backend.get_global_attribute(any_backend.GLOBAL_SEED_GENERATOR)
    return {
        "python": [version, list(numbers), gauss],
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002  Keras's users draw from it
        "keras": None if generator is None else np.array(generator.state.value),
    }


def put_back(state: Mapping[str, Any]) -> None:
    """Restore a random state."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    np.random.set_state(state["numpy"])  # noqa: NPY002
    put_generator_back(state["keras"])


def put_generator_back(value: Any) -> None:
    """Restore the state of Keras's global generator; None: it had none."""
    if value is None:
        any_backend.set_global_attribute(any_backend.GLOBAL_SEED_GENERATOR, None)
    else:
        any_backend.global_seed_generator().state.assign(np.asarray(value))
