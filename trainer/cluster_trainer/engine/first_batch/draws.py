"""What a step draws at random while the first batch is computed both ways: the same numbers.

A share draws what the whole batch would draw, and takes its own rows of that. What cannot be drawn
so, such as an order of the batch, is noted: the two ways cannot be compared then.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from cluster_trainer.engine.data.comparing import leaving_generators
from cluster_trainer.engine.first_batch.way import Way
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.private import tensorflow_names

SHAPED = ("stateless_normal", "stateless_uniform", "stateless_truncated_normal")
OF_TENSORFLOW = ("normal", "uniform", "truncated_normal")
OTHERS = ("stateless_categorical", "stateless_gamma", "stateless_binomial", "stateless_poisson")
OF_GENERATORS = ("normal", "uniform", "truncated_normal", "uniform_full_int", "binomial")


@contextmanager
def alike() -> Iterator[None]:
    """Have all draws of a step's way made so, and leave all generators as they are.

    But not Python's and NumPy's while threads that read data may draw from them.
    """
    seeds = tensorflow_names.operation_seeds()
    of_operations = seeds.getstate() if seeds is not None else None
    replacements = [*_replacements()]  # made of what is there before any is replaced
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    try:
        _set(replacements)
        with leaving_generators():
            yield
    finally:
        _set(before)
        if seeds is not None:
            seeds.setstate(of_operations)


def _set(functions: list[tuple[Any, str, Any]]) -> None:
    for owner, name, function in functions:
        setattr(owner, name, function)


def _replacements() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    for name in SHAPED:
        yield tf.random, name, _in_rows(getattr(tf.random, name))
    for name in OF_TENSORFLOW:
        own = getattr(tf.random, name)
        yield tf.random, name, _counted(own, getattr(tf.random, f"stateless_{name}"))
    for name in OTHERS:
        yield tf.random, name, _noted(getattr(tf.random, name), f"tf.random.{name}")
    for name in OF_GENERATORS:
        own = getattr(tf.random.Generator, name)
        yield tf.random.Generator, name, _noted(own, "tf.random.Generator")
    dropout = tf.nn.experimental.stateless_dropout
    yield tf.nn.experimental, "stateless_dropout", _dropout(dropout)
    get_seed = tensorflow_names.GET_SEED
    yield get_seed.owner, get_seed.name, _noted(get_seed.own, "tf.random")
    yield tf, "argsort", _argsort(tf.argsort)


def _way() -> Way | None:
    part = step_context.current()
    return part.first_batch if part else None


def _noted(own: Callable[..., Any], name: str) -> Callable[..., Any]:
    def draw(*arguments: Any, **keywords: Any) -> Any:
        if way := _way():
            way.note_draw(name)
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
    """Return what draws by a seed that counts a way's draws, as TensorFlow's operations do."""
    is_uniform = stateless is tf.random.stateless_uniform

    def counted(
        way: Way,
        shape: Any,
        low: Any = 0.0,
        high: Any = None,
        dtype: Any = tf.float32,
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
    """Return what notes an order of the batch, by which Keras shuffles."""

    def argsort(values: Any, *arguments: Any, **keywords: Any) -> Any:
        way = _way()
        if way and id(values) in way.drawn:
            way.note_draw("an order of the batch")
        return own(values, *arguments, **keywords)

    return argsort
