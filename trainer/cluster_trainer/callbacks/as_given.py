"""A user's callbacks as they were given to a fit, which may begin again in the same process.

What a callback has made of itself since, as a model that it builds when it first needs one, a
worker in a new process has not: from there on the workers of a ring would make different calls.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from typing import Any

import numpy as np

CONTAINERS = (dict, OrderedDict, defaultdict, Counter, set, list, deque)
LARGEST_BYTES, MOST_ELEMENTS = 2**20, 10_000


class AsGiven:
    """Puts callbacks back to what they are when this is made.

    That is their attributes, and what is in containers and arrays among these, which stay the same
    objects: the script may hold them, too. An array of more than LARGEST_BYTES is taken for data,
    which nobody changes, and so is a container of more than MOST_ELEMENTS. Any other object is as
    it has become, and so is what a function or a module remembers.

    Args:
        callbacks: of a user's own; what Keras's keep is in checkpoints.
    """

    def __init__(self, callbacks: Iterable[Any]) -> None:
        found: dict[int, tuple[Any, Any]] = {}  # by `id`: one may hold itself
        left: list[Any] = [vars(one) for one in callbacks]
        while left:
            value = left.pop()
            if isinstance(value, tuple):
                left.extend(value)
            elif id(value) not in found and (noted := _noted(value)) is not None:
                found[id(value)] = value, noted
                left.extend(_parts(noted))
        self._noted = [*found.values()]

    def restore(self) -> None:
        """Let the callbacks be as they were."""
        for value, noted in self._noted:
            if isinstance(value, np.ndarray):
                if value.flags.writeable and value.shape == noted.shape:
                    value[...] = noted
                continue
            value.clear()
            (value.extend if isinstance(value, (list, deque)) else value.update)(noted)


def _noted(value: Any) -> Any:
    """Return what a container or an array holds now; None for anything else."""
    if isinstance(value, np.ndarray):
        return value.copy() if value.nbytes <= LARGEST_BYTES and value.flags.writeable else None
    if type(value) not in CONTAINERS:  # not Keras's own, which tell a model of each change
        return None
    if len(value) > MOST_ELEMENTS:
        return None
    return dict(value) if isinstance(value, dict) else [*value]


def _parts(noted: Any) -> Iterable[Any]:
    if isinstance(noted, np.ndarray):
        return ()
    return noted.values() if isinstance(noted, dict) else noted
