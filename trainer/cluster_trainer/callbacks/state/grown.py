"""Encodes lists that grow by an item per epoch for checkpoints; each item is encoded once.

Every checkpoint contains all items, because any worker's disk may be the only one left. Encoding a
whole History again at the end of each epoch would make epochs longer and longer.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

ARRAY = "an array"


class Grown:
    """Lists that mostly grow, as lines of JSON that each hold the items since the last line."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._known: dict[str, tuple[int, Any]] = {}

    def text(self, lists: Mapping[str, Sequence[Any]]) -> np.ndarray:
        """Return all items of the lists as text, uint8 [n], which `lists_of` decodes."""
        if any(
            self._is_another(lists.get(name, ()), *known) for name, known in self._known.items()
        ):
            self.__init__()  # type: ignore[misc]
        more = {name: list(one[self._count(name) :]) for name, one in lists.items()}
        if more := {name: new for name, new in more.items() if new or name not in self._known}:
            self._text += json.dumps(more, default=_plain).encode() + b"\n"
        self._known = {name: (len(one), one[-1] if one else None) for name, one in lists.items()}
        return np.frombuffer(bytes(self._text), np.uint8)

    def _count(self, name: str) -> int:
        return self._known.get(name, (0, None))[0]

    @staticmethod
    def _is_another(present: Sequence[Any], count: int, last: Any) -> bool:
        """Tell whether a list has changed in another way than by growing."""
        return len(present) < count or bool(count and present[count - 1] is not last)


def lists_of(text: np.ndarray) -> dict[str, list[Any]]:
    """Decode the lists in a text, uint8 [n]; see `Grown.text`."""
    found: dict[str, list[Any]] = {}
    for line in text.tobytes().splitlines():
        for name, more in json.loads(line, object_hook=_array).items():
            found.setdefault(name, []).extend(more)
    return found


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"{type(value).__name__} is no number, text, array, list or dictionary")
    return {ARRAY: [str(array.dtype), array.tolist()]} if array.ndim else array.item()


def _array(value: dict[str, Any]) -> Any:
    if value.keys() != {ARRAY}:
        return value
    dtype, content = value[ARRAY]
    return np.array(content, dtype)
