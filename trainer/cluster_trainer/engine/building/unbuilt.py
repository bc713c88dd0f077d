"""Puts layers back as they were before an attempt to build them that failed."""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cluster_trainer.private import keras_names, tensorflow_names


class Unbuilt:
    """The layers of a model that are not built, what they hold, and what values are drawn from.

    A `build` that fails has mostly made some variables before, and called again makes them twice,
    with other values. Of an object that is no layer nothing is put back.
    """

    def __init__(self, model: Any) -> None:
        layers = [one for one in keras_names.layers_within(model) if not one.built]
        self._put_back = [*_of_layers(layers), *_of_generators()]

    def restore(self) -> None:
        """Let them hold what they held, and nothing else."""
        for put_back in self._put_back:
            put_back()


@contextmanager
def held_as_before(model: Any) -> Iterator[None]:
    """Let a model and all its layers hold afterwards what they held before, and nothing else."""
    back = [*_of_layers(keras_names.layers_within(model))]
    try:
        yield
    finally:
        for put_back in back:
            put_back()


def _of_layers(layers: Iterable[Any]) -> Iterator[Callable[[], None]]:
    """Yield what gives layers the attributes that they have now, with their contents."""
    held = [*layers]
    trackers = [keras_names.tracker(one) for one in held]  # what a layer holds, once more
    seen: set[int] = set()
    for one in (*held, *trackers):
        yield _refill(vars(one))
        for value in [*vars(one).values()]:
            yield from _of_container(value, seen)


def _of_container(value: Any, seen: set[int]) -> Iterator[Callable[[], None]]:
    """Yield what gives a container, and those within it, the contents that they have now.

    Past Keras's own kinds, which keep an account of each change. TensorFlow's dictionaries and
    lists have another one within.
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
    """Return what gives a list, dictionary or set the contents that it has now."""
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
    """Yield what puts the generators back that seeds and initial values are drawn from."""
    pythons, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002  what Keras seeds
    yield lambda: random.setstate(pythons)
    yield lambda: np.random.set_state(numpys)  # noqa: NPY002
    keras_own = keras_names.get_global_attribute(keras_names.GLOBAL_SEED_GENERATOR)
    if keras_own is None:
        yield lambda: keras_names.set_global_attribute(keras_names.GLOBAL_SEED_GENERATOR, None)
    else:
        seed = keras_own.state.numpy()
        yield lambda: keras_own.state.assign(seed)
