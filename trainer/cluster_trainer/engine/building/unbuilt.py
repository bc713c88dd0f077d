"""Restores layers to their state before a failed attempt to build them."""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cluster_trainer.private import keras_names, tensorflow_names


class Unbuilt:
    """A snapshot of a model's unbuilt layers, and of the generators of seeds and initial values.

    A `build` that fails has usually created some variables already. If it were called again, it
    would create them twice, with other values. Objects that are not layers are not restored.
    """

    def __init__(self, model: Any) -> None:
        layers = [one for one in keras_names.layers_within(model) if not one.built]
        self._put_back = [*of_layers(layers), *_of_generators()]

    def restore(self) -> None:
        """Restore the layers' attributes and the generators, and remove attributes added since."""
        for put_back in self._put_back:
            put_back()


@contextmanager
def held_as_before(model: Any) -> Iterator[None]:
    """Restore the content of a model and all its layers after the context."""
    back = [*of_layers(keras_names.layers_within(model))]
    try:
        yield
    finally:
        for put_back in back:
            put_back()


def of_layers(layers: Iterable[Any]) -> Iterator[Callable[[], None]]:
    """Yield functions that restore the layers' present attributes, with their contents."""
    held = [*layers]
    trackers = [keras_names.tracker(one) for one in held]  # with the ids of a layer's parts
    yield from of_objects([*held, *trackers])


def of_objects(objects: Iterable[Any]) -> Iterator[Callable[[], None]]:
    """Yield functions that restore objects' present attributes, with their contents."""
    seen: set[int] = set()
    for one in objects:
        yield _refill(vars(one))
        for value in [*vars(one).values()]:
            yield from _of_container(value, seen)


def _of_container(value: Any, seen: set[int]) -> Iterator[Callable[[], None]]:
    """Yield functions that restore the present contents of a container and nested ones.

    The functions bypass the methods of Keras's own containers, which record each change.
    TensorFlow's dictionaries and lists wrap a plain container, which is restored instead.
    """
    if type(value).__module__.startswith("tensorflow."):
        value = tensorflow_names.without_wrapper(value)
    if id(value) in seen or not isinstance(value, (dict, list, set, tuple)):
        return
    seen.add(id(value))
    if not isinstance(value, tuple):
        yield _refill(value)
    for part in [*(value.values() if isinstance(value, dict) else value)]:
        yield from _of_container(part, seen)


def _refill(value: Any) -> Callable[[], None]:
    """Return a function that restores the present contents of a list, dictionary or set."""
    if isinstance(value, list):
        items = list(value)
        return lambda: list.__setitem__(value, slice(None), items)
    plain: Any = dict if isinstance(value, dict) else set
    before = plain(value)

    def put_back() -> None:
        plain.clear(value)
        plain.update(value, before)

    return put_back


def _of_generators() -> Iterator[Callable[[], None]]:
    """Yield functions that restore the generators of seeds and initial values."""
    pythons, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002  Keras seeds this one
    yield lambda: random.setstate(pythons)
    yield lambda: np.random.set_state(numpys)  # noqa: NPY002
    keras_own = keras_names.get_global_attribute(keras_names.GLOBAL_SEED_GENERATOR)
    if keras_own is None:
        yield lambda: keras_names.set_global_attribute(keras_names.GLOBAL_SEED_GENERATOR, None)
    else:
        seed = keras_own.state.numpy()
        yield lambda: keras_own.state.assign(seed)
