"""What a step does to layers' own state, where that depends on a replica's share of the batch.

Much of it does not: a counter of steps, the moving average of an encoder's weights and a spectral
norm's vector are assigned alike on all replicas. What does not depend on the share is left alone,
on a replica without examples, too. What does:

- A replica without examples, which has borrowed one, forgets what it saw. What layers see of a
  batch that all replicas compute they keep: it is the same on all.
- Whole numbers that are added up, as counts of words are, get the sum of what all replicas add.
- Other whole numbers are each replica's own, and a warning says so.
- So are weights that are assigned without an optimizer. They are averaged; see statistics.py.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.collectives.replicas import summed
from cluster_trainer.engine.replicas import queues, statistics, step_context
from cluster_trainer.engine.replicas.writes import Writes

log = logging.getLogger("trainer")


@contextmanager
def seen_to(
    model: keras.Model, batch: Any, part: step_context.Share, *, guards: bool
) -> Iterator[Any]:
    """Let a step be done inside, and see to the state of the model's layers after it.

    Gives the batch that the step is to be given.

    Args:
        model: whose step it is.
        batch: this replica's share, which the step is given.
        part: what is known of the share.
        guards: whether the replica may be without examples.
    """
    whole = statistics.whole_numbers(model)
    state = [*(statistics.of_share(model) if guards else []), *whole]
    metrics = statistics.of_metrics(model) if guards else []
    before = {id(one): tf.identity(step_context.own(one)) for one in (*metrics, *state)}
    batch = tf.nest.map_structure(_of_any_size, batch) if whole else batch
    yield batch
    if tf.executing_eagerly():  # nothing tells whether it depends on the share
        dependent, counts = [one for one in state if _is_another(one, before[id(one)])], []
    else:
        writes = Writes(batch, [*state, *_weights(model, part, state)])
        dependent = writes.dependent()
        counts = [one for one in dependent if _is_in(one, whole) and writes.adds_to(one)]
    _count_all(counts, [before[id(one)] for one in counts], part.weight)
    for variable in (*metrics, *dependent):
        if id(variable) in before and not _is_in(variable, counts):
            sees_all = part.is_whole if not _is_in(variable, metrics) else False
            _unchanged_by_nothing(
                variable, before[id(variable)], is_kept=part.has_examples | sees_all
            )
    for variable in dependent:
        if _is_in(variable, whole) and not _is_in(variable, counts):
            _warn_of_whole_numbers(_name_of(variable))
    weights = [one for one in dependent if not _is_in(one, state)]
    if weights:
        _warn_of_weights(_name_of(weights[0]))
        statistics.note_own(model, weights)


def _is_another(variable: Any, before: tf.Tensor) -> bool:
    return bool(tf.reduce_any(step_context.own(variable) != before))


def _of_any_size(part: Any) -> Any:
    """Return a part of a batch of which nobody knows how many examples it has.

    Else a number that a step takes from its shape would be a constant, and not the share's.
    """
    if tf.executing_eagerly() or not isinstance(part, tf.Tensor) or not part.shape.rank:
        return part
    return tf.compat.v1.placeholder_with_default(part, [None, *part.shape[1:]])


def _weights(model: keras.Model, part: step_context.Share, state: Sequence[Any]) -> list[Any]:
    """Return what else of a model a step may have assigned, without an optimizer."""
    own = [*state, *statistics.of_replica(model)]
    return [
        one
        for one in statistics.weights(model)
        if not _is_in(one, own) and id(step_context.own(one)) not in part.trained
    ]


def _is_in(variable: Any, variables: Sequence[Any]) -> bool:
    """Tell whether it is one of them; Keras's compare their values."""
    return any(one is variable for one in variables)


def _name_of(variable: Any) -> str:
    return str(getattr(variable, "path", variable.name))


def _unchanged_by_nothing(variable: Any, before: tf.Tensor, *, is_kept: tf.Tensor) -> None:
    """Give a variable its value of before the step, unless what the step has made of it is kept."""
    copy = step_context.own(variable)
    if not queues.is_queue(copy):  # whose rows are those of all
        copy.assign(tf.where(is_kept, copy, before))


def _count_all(variables: Sequence[Any], before: Sequence[tf.Tensor], weight: tf.Tensor) -> None:
    """Give variables the sums of what all replicas have added in the step."""
    if not variables:
        return
    copies = [step_context.own(one) for one in variables]
    added = [
        tf.where(
            weight > 0, tf.cast(copy, tf.int64) - tf.cast(value, tf.int64), tf.constant(0, tf.int64)
        )
        for copy, value in zip(copies, before, strict=True)
    ]
    over_all = summed(added, "what layers count")
    for copy, value, more in zip(copies, before, over_all, strict=True):
        copy.assign(value + tf.cast(more, value.dtype))


@cache
def _warn_of_whole_numbers(name: str) -> None:
    log.warning(
        "%s holds whole numbers that depend on a replica's share of the batch and are not added "
        "up, as far as can be told: each replica keeps its own, and the first one's are saved. "
        "What a step adds (`assign_add`) is summed over all replicas, unless it runs eagerly.",
        name,
    )


@cache
def _warn_of_weights(name: str) -> None:
    log.warning(
        "A step assigns %s without an optimizer, from its replica's share of the batch: the "
        "replicas' values are averaged when an epoch ends, and differ until then. Give gradients "
        "to an optimizer, which gets those of the batch.",
        name,
    )
