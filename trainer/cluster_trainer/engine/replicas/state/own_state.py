"""Handles a step's changes to layers' own state that depend on a replica's share of the batch.

Many changes do not depend on it: a counter of steps, the moving average of an encoder's weights and
a spectral norm's vector are assigned equally on all replicas. Such state is left alone, even on a
replica without examples. Other state is handled as follows:

- A replica without examples has borrowed one, and discards its changes. If all replicas compute the
  whole batch, the changes are the same on all replicas, and stay.
- Integers that are added up, such as counts of words, get the sum of all replicas' additions. In a
  step that runs eagerly it is unknown whether a value depends on the share, so nothing is summed.
- Other integers are each replica's own, and a warning says so.
- Floating-point values that a step of the script's own assigns are averaged over all replicas, like
  gradients. Examples are gradients that it accumulates, the moving average of a loss, weights that
  it trains without an optimizer, and a learning rate.
- The statistics of Keras's own layers are averaged after a step whose shares differ in size, see
  uneven_shares.py, and when an epoch ends, see statistics.py.

Variables that the model does not track, such as a loss object's, are treated in the same way.

In a step that a worker takes by itself, nothing is summed. Instead rounds.py averages all state at
the round's end, and whole numbers that depend on the share are refused.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from cluster_trainer.collectives.replicas import summed
from cluster_trainer.engine.data.batch_shares import count_in
from cluster_trainer.engine.functions import runs_eagerly
from cluster_trainer.engine.replicas import statistics, step_context
from cluster_trainer.engine.replicas.state import queues, uneven_shares
from cluster_trainer.engine.replicas.state.untracked import untracked
from cluster_trainer.engine.replicas.state.writes import Writes
from cluster_trainer.problems import ConfigurationError, Problem

SUMS_IN_BRANCHES = Problem(
    "a step",
    "gradients or statistics under a condition on the batch, as in `tf.cond(loss > 1, …)`",
    "gradients that are applied, and synchronized layers that are called, in each step",
    "each worker would decide by its own share. Multiply the gradients by 0 or 1 instead, choose "
    "between a layer's output and its input with `tf.where`, or use a condition that is the same "
    "on all workers, such as a count of steps",
)
# For steps that each worker takes by itself; see rounds.py.
DIFFERENT_COUNTS = Problem(
    "TRAINER_SYNC_EVERY",
    "above 1, with whole numbers that depend on a worker's share of the batch",
    "1",
    "The step counts parts of the batches, such as words. Whole numbers cannot be averaged.",
)
log = logging.getLogger("trainer")


@contextmanager
def seen_to(  # noqa: PLR0913
    model: keras.Model,
    batch: Any,
    part: step_context.Share,
    foreseen: Sequence[Any] = (),
    *,
    guards: bool,
    is_keras_own: bool,
) -> Iterator[Any]:
    """Run a step in the context, and handle the state of the model's layers after it.

    Yields the batch for the step.

    Args:
        model: the model that the step belongs to.
        batch: this replica's share of the batch.
        part: facts about the share.
        foreseen: the variables that an earlier trace has left in `part.unforeseen`.
        guards: whether the replica may be without examples.
        is_keras_own: whether the model's `train_step` is Keras's own.

    Raises:
        ConfigurationError: each replica would decide for itself whether gradients are summed.
    """
    whole = [*statistics.whole_numbers(model), *filter(is_whole_number, foreseen)]
    are_kept = guards or not part.are_even
    averaged = statistics.of_share(model) if are_kept else []
    state = [*averaged, *whole]
    if guards and part.is_own_step:  # else assigned values are weighted by the share
        others = [*_of_script(model, part), *filter(_is_floating, foreseen)]
        state += [one for one in others if not _is_in(one, state)]
    metrics = statistics.of_metrics(model) if guards else []
    before = {id(one): tf.identity(step_context.own(one)) for one in (*metrics, *state)}
    batch = tf.nest.map_structure(_of_any_size, batch) if whole else batch
    yield batch
    if part.is_own_step:
        state = [one for one in state if id(_copy(one)) not in part.trained]
    part.unforeseen += _unforeseen(model, batch, part, foreseen, guards=guards)
    changes = _seen(model, batch, part, state, before, is_keras_own=is_keras_own)
    dependent, counts, means, moves = changes
    if part.is_own_step:  # rounds.py averages assigned values
        if not tf.executing_eagerly() and any(_is_in(one, whole) for one in dependent):
            part.problems.append(DIFFERENT_COUNTS)
        counts, means = [], []
        if guards and tf.executing_eagerly():
            more = [one for one in untracked(model, part) if _is_floating(one)]
            before |= {id(one): part.assigned[id(_copy(one).handle)][1] for one in more}
            dependent += more
    _count_all(counts, [before[id(one)] for one in counts], part.weight)
    _average_all(means, part.weight)
    momenta = statistics.momenta(model)
    own = [one for one in statistics.of_users(model) if id(one) not in momenta]
    uneven = _uneven([one for one in averaged if not _is_in(one, own)], changes, part)
    moved = [
        uneven_shares.Moved(one, before[id(one)], momenta.get(id(one), 1.0) ** moves[id(one)])
        for one in uneven
    ]
    uneven_shares.average(moved, part.weight)
    for variable in (*metrics, *dependent):
        # An integer that is not a count also stays: a step counter must not fall behind.
        is_number = _is_in(variable, whole) and not _is_boolean(variable)
        stays = is_number or _is_in(variable, [*means, *uneven])
        if id(variable) in before and not stays:
            sees_all = part.is_whole if not _is_in(variable, metrics) else False
            _unchanged_by_nothing(
                variable, before[id(variable)], is_kept=part.has_examples | sees_all
            )
    numbers = [one for one in dependent if _is_in(one, whole) and not _is_in(one, counts)]
    _tell_numbers(model, numbers, part)


def _tell_numbers(model: keras.Model, numbers: Sequence[Any], part: step_context.Share) -> None:
    """Warn of integers and booleans that depend on the share, and are not summed."""
    if tf.executing_eagerly():
        for variable in (*numbers, *filter(is_whole_number, untracked(model, part))):
            _warn_of_eager_numbers(step_context.name_of(variable))
    elif not runs_eagerly(model):  # else this is a trace for a comparison, and the step warns
        for variable in numbers:
            _warn_of_whole_numbers(step_context.name_of(variable))


class _Changes(NamedTuple):
    """The variables to which a step has assigned values that depend on the share.

    Attributes:
        dependent: all these variables.
        counts: the integers that are added up.
        means: the floating-point variables that a step of the script's own assigns.
        moves: how often the step assigns each variable, by `id`; 1 if that is unknown.
    """

    dependent: list[Any]
    counts: list[Any]
    means: list[Any]
    moves: Counter[int]


def _seen(  # noqa: PLR0913
    model: keras.Model,
    batch: Any,
    part: step_context.Share,
    state: Sequence[Any],
    before: Mapping[int, tf.Tensor],
    *,
    is_keras_own: bool,
) -> _Changes:
    """Return the variables to which a step has assigned share-dependent values; see `seen_to`.

    Raises:
        ConfigurationError: each replica would decide for itself whether gradients are summed.
    """
    own = _of_script(model, part)
    if tf.executing_eagerly():  # without a graph, it is unknown whether they depend on the share
        dependent = [one for one in state if _is_another(one, before[id(one)])]
        means = [one for one in own if _is_assigned(one, part)]
        _tell_queues(means, count_in(batch), part)
        means = _averaged(means, model, part, is_keras_own=is_keras_own)
        means += _changed_with(means, model, batch, part)
        return _Changes(dependent, [], means, _moves(state, part))
    writes = Writes(batch, [*state, *(one for one in own if not _is_in(one, state))], part)
    dependent = writes.dependent()
    counts = [one for one in dependent if is_whole_number(one) and writes.adds_to(one)]
    means = [one for one in own if _is_in(one, dependent) and not queues.is_queue(_copy(one))]
    means = _averaged(means, model, part, is_keras_own=is_keras_own)
    if writes.sums_in_branches([*counts, *means]):
        raise ConfigurationError([SUMS_IN_BRANCHES])
    means += _changed_with(means, model, batch, part)
    moves = Counter({id(one): writes.number_of(one) for one in dependent})
    return _Changes(dependent, counts, means, moves)


def _moves(state: Sequence[Any], part: step_context.Share) -> Counter[int]:
    """Return how often an eager step has assigned each variable, except in a `tf.function`."""
    return Counter({id(one): part.moves[id(_copy(one).handle)] or 1 for one in state})


def _uneven(state: Sequence[Any], changes: _Changes, part: step_context.Share) -> list[Any]:
    """Return the statistics to average if the step's shares differ in size, the same everywhere.

    In a step that runs eagerly, a statistic may have changed on some replicas only. A step that the
    worker takes by itself is followed by the average of rounds.py.

    Args:
        state: the statistics of Keras's layers. State of the script's own may be a share's part of
            a sum, such as accumulated gradients of a scaled loss.
        changes: what the step has changed.
        part: facts about the share.
    """
    if part.are_even or part.is_own_step:
        return []
    is_eager = tf.executing_eagerly()
    changed = [one for one in state if is_eager or _is_in(one, changes.dependent)]
    others = [one for one in changed if not _is_in(one, changes.means)]
    return [one for one in others if not queues.is_queue(_copy(one))]


def _unforeseen(
    model: keras.Model,
    batch: Any,
    part: step_context.Share,
    foreseen: Sequence[Any],
    *,
    guards: bool,
) -> list[Any]:
    """Return untracked variables whose values from before a traced step were needed.

    They are found only when the step is traced, so it is traced again. Integers may be added up,
    for which the share also needs an unknown number of rows; see `_of_any_size`. In a step that a
    worker takes by itself, a replica without examples discards its changes.
    """
    if tf.executing_eagerly():
        return []
    found = [one for one in untracked(model, part) if not _is_in(one, foreseen)]
    numbers = [one for one in found if is_whole_number(one)]
    needed = Writes(batch, numbers, part).of_rows(part.rows)
    if guards and part.is_own_step:
        needed += Writes(batch, [one for one in found if _is_floating(one)], part).written
    return needed


def _is_another(variable: Any, before: tf.Tensor) -> bool:
    return bool(tf.reduce_any(step_context.own(variable) != before))


def _of_any_size(part: Any) -> Any:
    """Return a part of a batch with an unknown number of examples.

    With a known size, a number that a step takes from the shape would be a constant in its graph,
    which does not show that the number depends on the share.
    """
    if tf.executing_eagerly() or not isinstance(part, tf.Tensor) or not part.shape.rank:
        return part
    return tf.compat.v1.placeholder_with_default(part, [None, *part.shape[1:]])


def _of_script(model: keras.Model, part: step_context.Share) -> list[Any]:
    """Return the floating-point variables that only a step of the script's own may assign.

    They include weights that an optimizer trains, and that the step assigns, too, as in SAM.
    """
    others = [*statistics.of_users(model), *statistics.weights(model), *statistics.rates(model)]
    others += untracked(model, part)
    found = {id(one): one for one in others if not _is_only_trained(one, part)}
    return [
        one for one in found.values() if _is_floating(one) and not step_context.is_aggregated(one)
    ]


def _is_only_trained(variable: Any, part: step_context.Share) -> bool:
    """Tell whether only optimizers assign a variable, or rounds.py averages what they train."""
    is_trained = id(_copy(variable)) in part.trained
    return is_trained and (part.is_own_step or not _is_assigned(variable, part))


def _is_assigned(variable: Any, part: step_context.Share) -> bool:
    return id(_copy(variable).handle) in part.assigned


def _averaged(
    means: list[Any], model: keras.Model, part: step_context.Share, *, is_keras_own: bool
) -> list[Any]:
    """Return the variables to average, and warn if they keep different values on each replica.

    A value made from a scaled loss is the share's part of a sum, and cannot be averaged as a mean.
    There is no warning about layers' state, which is averaged when an epoch ends.
    """
    if not part.is_weighted or is_keras_own or part.is_own_step:
        return means
    averaged_later = statistics.of_users(model)
    for one in means:
        if not _is_in(one, averaged_later):
            _warn_of_scaled(step_context.name_of(one))
    return []


def _changed_with(
    means: Sequence[Any], model: keras.Model, batch: Any, part: step_context.Share
) -> list[Any]:
    """Return the variables whose changes depend on a learning rate that is among `means`.

    They are weights, and the optimizer's state, such as the velocities of SGD.
    """
    rates = [one for one in statistics.rates(model) if _is_in(one, means)]
    if not rates:
        return []
    changed = [*statistics.weights(model), *statistics.of_optimizers(model)]
    others = [one for one in changed if _is_floating(one) and not _is_in(one, means)]
    if tf.executing_eagerly():
        return others
    dependent = Writes(batch, [*rates, *others], part).dependent()
    return [one for one in dependent if not _is_in(one, rates)]


def _is_boolean(variable: Any) -> bool:
    return bool(tf.as_dtype(variable.dtype).is_bool)


def is_whole_number(variable: Any) -> bool:
    """Tell whether a variable holds integers or booleans."""
    return bool(tf.as_dtype(variable.dtype).is_integer) or _is_boolean(variable)


def _is_floating(variable: Any) -> bool:
    return bool(tf.as_dtype(variable.dtype).is_floating)


def _is_in(variable: Any, variables: Sequence[Any]) -> bool:
    """Tell whether a variable is one of `variables`; `in` would compare the values of Keras's."""
    return any(one is variable for one in variables)


def _copy(variable: Any) -> Any:
    return step_context.own(variable)


def _unchanged_by_nothing(variable: Any, before: tf.Tensor, *, is_kept: tf.Tensor) -> None:
    """Restore a variable's value from before the step, unless the step's change is kept."""
    copy = step_context.own(variable)
    if not queues.is_queue(copy):  # a queue has the rows of all replicas
        copy.assign(tf.where(is_kept, copy, before))


def _count_all(variables: Sequence[Any], before: Sequence[tf.Tensor], weight: tf.Tensor) -> None:
    """Give variables the sums of all replicas' additions in the step."""
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


def _average_all(variables: Sequence[Any], weight: tf.Tensor) -> None:
    """Give variables the mean of all replicas' assignments, weighted by their shares.

    The sum in float64 is divided by the sum of the weights. So the mean of equal numbers of up to
    32 bits is exactly that number.
    """
    if not variables:
        return
    copies, exact = [_copy(one) for one in variables], tf.cast(weight, tf.float64)
    parts = [tf.math.multiply_no_nan(tf.cast(one, tf.float64), exact) for one in copies]
    *sums, total = summed([*parts, exact], "what a step assigns")
    for copy, mean in zip(copies, sums, strict=True):
        copy.assign(tf.cast(mean / total, copy.dtype))


def _tell_queues(assigned: Sequence[Any], rows: int, part: step_context.Share) -> None:
    """Warn of queues among the variables to which an eager step has assigned a share's rows."""
    for one in assigned:
        copy = _copy(one)
        _, before = part.assigned.get(id(copy.handle), (None, None))
        if before is not None and queues.has_moved_on(before.numpy(), copy.numpy(), rows):
            _warn_of_eager_queue(step_context.name_of(one))


@cache
def _warn_of_eager_queue(name: str) -> None:
    log.warning(
        "%s looks like a queue of examples, and a step that runs eagerly assigns it: it gets the "
        "mean of the replicas' rows, which is no queue. A compiled step gives it the rows of all "
        "replicas: leave out `run_eagerly`.",
        name,
    )


@cache
def _warn_of_scaled(name: str) -> None:
    log.warning(
        "A step that calls scale_loss assigns %s from its share of the batch, without an "
        "optimizer: each replica keeps its own, and the first one's is saved. Give gradients to an "
        "optimizer, which gets those of the batch.",
        name,
    )


@cache
def _warn_of_whole_numbers(name: str) -> None:
    log.warning(
        "%s holds integers or booleans that depend on a replica's share of the batch, and that "
        "apparently are not added up: each replica keeps its own, and the first one's are saved. "
        "Integers that a step adds (`assign_add`) are summed over all replicas.",
        name,
    )


@cache
def _warn_of_eager_numbers(name: str) -> None:
    log.warning(
        "%s holds integers or booleans that a step assigns eagerly. If they depend on a replica's "
        "share of the batch, each replica keeps its own, and the first one's are saved. Integers "
        "that a step adds (`assign_add`) are summed over all replicas, unless the step runs "
        "eagerly: leave out `run_eagerly`.",
        name,
    )
