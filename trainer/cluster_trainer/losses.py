"""The loss: one number for each example, whatever of Keras' a script gives.

A loss object of Keras' divides by the number of its replica's examples and by the number of
replicas. The loop divides by the examples of the whole global batch instead, however it was cut,
and leaves out those that only fill it up. So a loss is asked for one number an example.
"""

import copy
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.problems import ConfigurationError, Problem

# (labels int64 [n], outputs float32 [n, classes]) -> float32 [n], one loss an example
Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

SHAPES = "(labels, whole numbers [n], outputs [n, classes])"
AN_EXAMPLE = f"a loss from {SHAPES} to one loss for each example, [n]"
MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight", "none", None)


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return the cross-entropy of each example, float32 [n], from logits [n, classes]."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def read_loss(given: Any, num_classes: int) -> Loss:
    """Return what a script gave as one loss an example, with its name.

    Args:
        given: whatever `compile` takes as a loss: a name, a loss object or class, a function.
            None: the cross-entropy of logits.
        num_classes: of the model's outputs.

    Raises:
        ConfigurationError: it is no loss, or none that belongs to single examples.
    """
    if given is None:
        return cross_entropy
    try:
        loss = keras.losses.get(given)
    except ValueError as error:
        accepted = "a loss of Keras' by its name, a keras.losses.Loss, or a function"
        raise _refused(given, accepted, f"{error}.") from error
    if isinstance(loss, keras.losses.Loss):
        loss = _unreduced(loss)

    def of_each(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.cast(loss(labels, outputs), tf.float32), tf.shape(labels))

    _try(given, loss, num_classes)
    of_each.__name__ = name_of(given)
    return of_each


def takes_logits(given: Any) -> bool | None:
    """Tell whether a loss is meant for logits or for probabilities; None: it does not say."""
    if given is None:
        return True
    loss = keras.losses.get(given)
    if loss is keras.losses.sparse_categorical_crossentropy:
        return False
    return getattr(loss, "from_logits", None)


def name_of(given: Any) -> str:
    """Return the name of what was given as a loss."""
    if isinstance(given, str):
        return given
    return str(getattr(given, "name", None) or getattr(given, "__name__", type(given).__name__))


def _unreduced(loss: keras.losses.Loss) -> keras.losses.Loss:
    """Return a copy that sums nothing up."""
    if loss.reduction not in MEANS:
        advice = "Here the loss of a batch is the mean over its examples, however it is cut."
        raise _refused(loss, "a loss whose reduction is sum_over_batch_size or none", advice)
    if getattr(loss, "ignore_class", None) is not None:
        advice = "Leave these examples out of the data."
        raise _refused(loss, "a loss that counts each example, without ignore_class", advice)
    loss = copy.copy(loss)
    loss.reduction = "none"
    return loss


def _try(given: Any, loss: Loss, num_classes: int) -> None:
    """Refuse a loss that does not give each of a few examples a number of its own.

    Another number of examples than of classes, so that no wrong dimension fits by chance; some of
    them of one class, for a loss that compares those.
    """
    count = 7 if num_classes != 7 else 8  # noqa: PLR2004
    labels = tf.range(count, dtype=tf.int64) % min(num_classes, 3)
    outputs = tf.random.stateless_uniform([count, num_classes], seed=[1, 2])
    try:
        together, again = loss(labels, outputs), loss(labels, outputs)
        alone = loss(labels[:1], outputs[:1])
    except (AttributeError, TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        raise _refused(given, AN_EXAMPLE, f"It says: {str(error).strip()}") from error
    shape = np.shape(together)
    if shape not in ((count,), (count, 1)):
        what = "one number for the whole batch" if shape == () else f"the shape {list(shape)}"
        advice = f"For {count} examples it returned {what}; the mean is taken afterwards."
        raise _refused(given, AN_EXAMPLE, advice)
    is_random = not np.allclose(together, again, equal_nan=True)
    if not is_random and not np.allclose(together[:1], alone, rtol=1e-3, equal_nan=True):
        advice = "An example's loss depends on the others of its batch, which replicas share out."
        raise _refused(given, AN_EXAMPLE, advice)


def _refused(given: Any, accepted: str, advice: str) -> ConfigurationError:
    return ConfigurationError([Problem("loss", name_of(given), accepted, advice)])
