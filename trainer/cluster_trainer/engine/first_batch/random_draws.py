"""Makes the random draws of a step the same in both ways of computing the first batch.

A replica draws the numbers of the whole batch, and uses its share's rows. If this is impossible, as
for a random order of the batch, the draw is noted, and the ways cannot be compared.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from cluster_trainer.engine.data.same_data import leaving_generators
from cluster_trainer.engine.first_batch.way import Way
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.private import tensorflow_names
from cluster_trainer.private.replaceable import Replaceable

SHAPED = ("stateless_normal", "stateless_uniform", "stateless_truncated_normal")
OF_TENSORFLOW = ("normal", "uniform", "truncated_normal")
OTHERS = ("stateless_categorical", "stateless_gamma", "stateless_binomial", "stateless_poisson")
OF_GENERATORS = ("normal", "uniform", "truncated_normal", "uniform_full_int", "binomial")


@contextmanager
def alike() -> Iterator[None]:
    """Let steps in the context draw equal numbers in both ways, and restore all generators.

    Python's and NumPy's generators may differ between workers, and threads that read data draw from
    them. So each way has its own generators, which begin with the same state.
    """
    seeds = tensorflow_names.operation_seeds()
    of_operations = seeds.getstate() if seeds is not None else None
    replacements = [*_replacements()]  # made from the present functions before any is replaced
    try:
        with ExitStack() as replaced, leaving_generators():
            for theirs, ours in replacements:
                replaced.enter_context(theirs.put_for_now(ours))
            yield
    finally:
        if seeds is not None:
            seeds.setstate(of_operations)


def _replacements() -> Iterator[tuple[Replaceable, Callable[..., Any]]]:
    yield from _of_generator(random, random.Random, lambda way: way.pythons)
    yield from _of_generator(np.random, np.random.RandomState, lambda way: way.numpys)
    for name in SHAPED:
        theirs = Replaceable(tf.random, name)
        yield theirs, _in_rows(theirs.own)
    for name in OF_TENSORFLOW:
        theirs = Replaceable(tf.random, name)
        yield theirs, _counted(theirs.own, getattr(tf.random, f"stateless_{name}"))
    for name in OTHERS:
        theirs = Replaceable(tf.random, name)
        yield theirs, _noted(theirs.own, f"tf.random.{name}")
    for name in OF_GENERATORS:
        theirs = Replaceable(tf.random.Generator, name)
        yield theirs, _noted(theirs.own, "tf.random.Generator")
    dropout = Replaceable(tf.nn.experimental, "stateless_dropout")
    yield dropout, _dropout(dropout.own)
    get_seed = tensorflow_names.GET_SEED
    yield get_seed, _noted(get_seed.own, "tf.random")
    argsort = Replaceable(tf, "argsort")
    yield argsort, _argsort(argsort.own)


def _of_generator(
    module: Any, like: Any, of_way: Callable[[Way], Any]
) -> Iterator[tuple[Replaceable, Callable[..., Any]]]:
    """Yield replacements for a module's functions, which draw from the generator of a way."""
    for name in dir(like):
        if not name.startswith("_") and callable(getattr(module, name, None)):
            theirs = Replaceable(module, name)
            yield theirs, _chosen(theirs.own, name, of_way)


def _chosen(own: Callable[..., Any], name: str, of_way: Callable[[Way], Any]) -> Callable[..., Any]:
    def draw(*arguments: Any, **keywords: Any) -> Any:
        way = _way()  # none in threads that read data
        function = own if way is None else getattr(of_way(way), name)
        return function(*arguments, **keywords)

    return draw


def _way() -> Way | None:
    part = step_context.current()
    return part.first_batch if part else None


def _noted(own: Callable[..., Any], name: str) -> Callable[..., Any]:
    def draw(*arguments: Any, **keywords: Any) -> Any:
        if way := _way():
            way.differing.add(name)
        return own(*arguments, **keywords)

    return draw


def _in_rows(own: Callable[..., Any]) -> Callable[..., Any]:
    def draw(shape: Any, *arguments: Any, **keywords: Any) -> Any:
        way = _way()
        if way is None:
            return own(shape, *arguments, **keywords)
        return way.rows_of(lambda whole: own(whole, *arguments, **keywords), shape)

    return draw


def _counted(own: Callable[..., Any], stateless: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws with the number of the draw as its seed."""
    is_uniform = stateless is tf.random.stateless_uniform

    def counted(
        way: Way,
        shape: Any,
        low: Any = 0.0,
        high: Any = None,
        dtype: Any = tf.float32,
        *_seed_and_name: Any,
        **keywords: Any,
    ) -> Any:
        names = ("minval", "maxval") if is_uniform else ("mean", "stddev")
        low, high = keywords.get(names[0], low), keywords.get(names[1], high)
        limits = {names[0]: low, names[1]: 1 if high is None else high}
        seed = tf.constant([way.next_draw(), 0])

        def of_shape(whole: Any) -> Any:
            return stateless(whole, seed=seed, dtype=dtype, **limits)

        return way.rows_of(of_shape, shape)

    def draw(*arguments: Any, **keywords: Any) -> Any:
        way = _way()  # none in threads that read data
        return own(*arguments, **keywords) if way is None else counted(way, *arguments, **keywords)

    return draw


def _dropout(own: Callable[..., Any]) -> Callable[..., Any]:
    def dropout(
        x: Any, rate: Any, seed: Any, *more: Any, noise_shape: Any = None, **keywords: Any
    ) -> Any:
        way = _way()
        if way is None:
            return own(x, rate, seed, *more, noise_shape=noise_shape, **keywords)
        x = tf.convert_to_tensor(x)
        shape = tf.shape(x) if noise_shape is None else noise_shape
        kept = way.rows_of(
            lambda whole: own(tf.ones(whole, x.dtype), rate, seed, *more, **keywords), shape
        )
        return tf.where(kept > 0, x * kept, tf.zeros_like(x))

    return dropout


def _argsort(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `argsort` that notes sorting by random numbers, as Keras does to shuffle."""

    def argsort(values: Any, *arguments: Any, **keywords: Any) -> Any:
        way = _way()
        if way and id(values) in way.drawn:
            way.differing.add("an order of the batch")
        return own(values, *arguments, **keywords)

    return argsort
