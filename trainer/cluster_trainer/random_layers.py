"""Keras' random layers draw on each replica for itself.

A layer's seeds are a variable (`keras.random.SeedGenerator`) that counts alike on all replicas, so
that all would drop the same units of their different examples. Here each replica folds its number
into every seed that it takes. What is drawn is a function of the seed, of how often something was
drawn before, and of the replica; the variables stay alike everywhere, and a checkpoint of any
worker has them all.
"""

import keras
import tensorflow as tf

_next_alike = keras.random.SeedGenerator.next


def draw_apart() -> None:
    """Let all random layers of this process draw so from now on; on one replica nothing changes."""
    keras.random.SeedGenerator.next = _next_apart


def _next_apart(self: keras.random.SeedGenerator, ordered: bool = True) -> tf.Tensor:  # noqa: FBT001, FBT002  Keras' signature
    seed = _next_alike(self, ordered)
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return seed
    replica = tf.cast(context.replica_id_in_sync_group, seed.dtype)
    return tf.random.experimental.stateless_fold_in(seed, replica)
