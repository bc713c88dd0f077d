"""Restores a user's callbacks when a fit begins again in the same process.

A callback may change itself, for example build a model when it first needs one. The callback of a
worker in a new process has not done that. So without this, the workers of a ring would make
different calls.
"""

import logging
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from typing import Any

import numpy as np

CONTAINERS = (dict, OrderedDict, defaultdict, Counter, set, list, deque)
LARGEST_BYTES, MOST_ELEMENTS = 2**20, 10_000
MOST_BYTES = 2**26
"""The limit for all copies of a fit."""
ELEMENT_BYTES, ENTRY_BYTES = 8, 64  # a reference; at most an entry of a dictionary or a set
log = logging.getLogger("trainer")


class AsGiven:
    """Restores callbacks to their state when this object was created.

    It restores their attributes, and the content of containers and arrays in these. The containers
    stay the same objects, because the script may hold them, too. These exceptions keep their
    present state:

    - arrays of more than LARGEST_BYTES, and containers of more than MOST_ELEMENTS, which count as
      data;
    - whatever exceeds MOST_BYTES of copies in all. Containers are copied first, the outer ones
      before nested ones; then arrays, from the smallest to the largest;
    - all other objects, such as functions and modules.

    Args:
        callbacks: a user's own callbacks; checkpoints have the state of Keras's.
    """

    def __init__(self, callbacks: Iterable[Any]) -> None:
        self._noted: list[tuple[Any, Any]] = []
        self._bytes_left, self._is_all = MOST_BYTES, True
        arrays = self._note_containers(vars(one) for one in callbacks)
        for array in sorted(arrays, key=lambda one: one.nbytes):
            if self._may_copy(array.nbytes):
                self._noted.append((array, array.copy()))

    def _note_containers(self, attributes: Iterable[dict[str, Any]]) -> list[np.ndarray]:
        """Save the content of containers; return the arrays found in them."""
        found: dict[int, Any] = {}  # by `id`: a container may hold itself, or be held several times
        left: deque[Any] = deque(attributes)
        while left:
            value = left.popleft()
            if id(value) in found or not _may_change(value):
                continue
            found[id(value)] = value
            if isinstance(value, np.ndarray) or not self._may_copy(_bytes_of(value)):
                continue
            noted = dict(value) if isinstance(value, dict) else [*value]
            if not isinstance(value, tuple):
                self._noted.append((value, noted))
            left.extend(noted.values() if isinstance(noted, dict) else noted)
        return [one for one in found.values() if isinstance(one, np.ndarray)]

    def _may_copy(self, size: int) -> bool:
        """Tell whether `size` more bytes may be copied, and count them."""
        if size > self._bytes_left:
            self._is_all = False
            return False
        self._bytes_left -= size
        return True

    def restore(self) -> None:
        """Restore the callbacks."""
        if not self._is_all:
            log.warning(
                "your callbacks hold more than %d MB: their largest arrays, or the contents "
                "of their lists, begin as they are now, and not as they were given to fit",
                MOST_BYTES >> 20,
            )
        for value, noted in self._noted:
            if isinstance(value, np.ndarray):
                if value.flags.writeable and value.shape == noted.shape:
                    value[...] = noted
                continue
            value.clear()
            (value.extend if isinstance(value, (list, deque)) else value.update)(noted)


def _bytes_of(container: Any) -> int:
    return len(container) * (ENTRY_BYTES if isinstance(container, (dict, set)) else ELEMENT_BYTES)


def _may_change(value: Any) -> bool:
    """Tell whether a value is an array or a container that is small enough not to count as data."""
    if isinstance(value, np.ndarray):
        return value.flags.writeable and value.nbytes <= LARGEST_BYTES
    # Not Keras's own containers, which report each change to a model. A tuple may contain one.
    is_container = isinstance(value, tuple) or type(value) in CONTAINERS
    return is_container and len(value) <= MOST_ELEMENTS
