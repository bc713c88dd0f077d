"""Lets Keras's random layers draw different numbers on each replica.

A layer's seed is a variable (`keras.random.SeedGenerator`) that is equal on all replicas. So a
Dropout would drop the same units on all replicas, for different examples. Here each replica folds
its number into every seed. The variables themselves stay equal, so any worker's checkpoint is
complete. If all replicas compute the same whole batch, they draw the numbers of one device.
"""

from typing import Any

import tensorflow as tf
from keras.random import SeedGenerator

from cluster_trainer.collectives.replicas import number
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.private import keras_names

_next_alike = SeedGenerator.next


def global_seed() -> list[Any]:
    """Return the state of Keras's global seed generator in a list; [] before its first draw."""
    generator = keras_names.get_global_attribute(keras_names.GLOBAL_SEED_GENERATOR)
    return [] if generator is None else [generator.state]


def next_apart(self: Any, ordered: bool = True) -> tf.Tensor:  # noqa: FBT001, FBT002  Keras's signature
    """Return the next seed; within a step of several replicas, the seed of this replica."""
    seed, share = _next_alike(self, ordered), step_context.current()
    if share is None or share.first_batch is not None:
        return seed
    apart = tf.random.experimental.stateless_fold_in(seed, tf.cast(number(), seed.dtype))
    own = apart if share.is_whole is False else tf.where(share.is_whole, seed, apart)
    share.apart.append(own)
    share.seed_states.append(self.state)
    return own
