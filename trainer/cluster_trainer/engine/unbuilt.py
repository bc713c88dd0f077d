"""Layers as they were before something tried to build them, and has failed half-way."""

from collections.abc import Callable, Iterator
from typing import Any


class Unbuilt:
    """The layers of a model that are not built, and what they hold.

    A `build` that fails has mostly made some variables before, and called again makes them twice.

    Args:
        model: whose layers they are; itself, too.
    """

    def __init__(self, model: Any) -> None:
        layers = [one for one in model._flatten_layers() if not one.built]  # noqa: SLF001
        trackers = [one._tracker for one in layers]  # noqa: SLF001  what a layer holds, once more
        self._put_back = [back for one in (*layers, *trackers) for back in _of_object(one)]

    def restore(self) -> None:
        """Let them hold what they held, and nothing else."""
        for put_back in self._put_back:
            put_back()


def _of_object(one: Any) -> Iterator[Callable[[], None]]:
    """Yield what gives an object the attributes that it has now, with their contents."""
    attributes, before = vars(one), dict(vars(one))

    def put_back() -> None:
        attributes.clear()
        attributes.update(before)

    yield put_back
    seen: set[int] = set()
    for value in before.values():
        yield from _of_container(value, seen)


def _of_container(value: Any, seen: set[int]) -> Iterator[Callable[[], None]]:
    """Yield what gives lists, dictionaries and sets the contents that they have now."""
    # TensorFlow's own kinds of dictionaries and lists have another one within.
    value = getattr(value, "__wrapped__", value)
    value = getattr(value, "_storage", value)
    if not isinstance(value, (list, dict, set)) or id(value) in seen:
        return
    seen.add(id(value))
    yield _refill(value)
    for inner in value.values() if isinstance(value, dict) else value:
        yield from _of_container(inner, seen)


def _refill(value: list[Any] | dict[Any, Any] | set[Any]) -> Callable[[], None]:
    """Return what does so for one; past Keras's own kinds, which keep an account of each change."""
    if isinstance(value, list):
        items = list(value)
        return lambda: list.__setitem__(value, slice(None), items)
    kind: Any = dict if isinstance(value, dict) else set
    before = kind(value)

    def put_back() -> None:
        kind.clear(value)
        kind.update(value, before)

    return put_back
