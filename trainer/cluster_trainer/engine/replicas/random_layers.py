"""Keras's random layers draw on each replica for itself.

A layer's seeds are a variable (`keras.random.SeedGenerator`) that counts alike on all replicas, so
that all would drop the same units of their different examples. Here each replica folds its number
into every seed that it takes. What is drawn is a function of the seed, of how often something was
drawn before, and of the replica; the variables stay alike everywhere, and a checkpoint of any
worker has them all.
"""

from typing import Any

import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR, SeedGenerator

from cluster_trainer.collectives.replicas import number
from cluster_trainer.engine.replicas import step_context

_next_alike = SeedGenerator.next


def draw_apart() -> None:
    """Let all random layers draw so within a step; on one replica nothing changes."""
    SeedGenerator.next = _next_apart


def states_of(model: Any) -> list[Any]:
    """Return what a model's layers keep beside weights, such as what they have drawn so far."""
    found: list[Any] = []
    for layer in model._flatten_layers():  # noqa: SLF001
        found += layer._non_trainable_variables  # noqa: SLF001
        found += [one.state for one in layer._seed_generators]  # noqa: SLF001
    return list({id(one): one for one in found}.values())


def global_seed() -> list[Any]:
    """Return that of Keras's global generator; none before the first draw from it."""
    generator = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    return [] if generator is None else [generator.state]


def _next_apart(self: Any, ordered: bool = True) -> tf.Tensor:  # noqa: FBT001, FBT002  Keras's signature
    seed = _next_alike(self, ordered)
    part = step_context.current()
    if part is None or part.first_batch is not None:
        return seed
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(number(), seed.dtype))
