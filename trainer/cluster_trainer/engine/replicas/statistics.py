"""Averages the state that each replica keeps for itself during training.

BatchNorm's moving statistics, and all other state that a layer assigns in a training step, differ
between replicas. They are averaged before they are read. Over a ring, only the values that steps
have changed are averaged. Values that a script sets itself, for example by `load_weights` on the
chief, are left to `alike`.
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import keras
import tensorflow as tf

from cluster_trainer.collectives import local_devices
from cluster_trainer.collectives.replicas import Replicas, count, count_of, ring_of, summed
from cluster_trainer.engine.functions import function_of
from cluster_trainer.engine.replicas import of_model, step_context
from cluster_trainer.private import keras_names

# The keys have the ring's generation, because workers of another ring may have changed nothing, and
# the variable's `id`, because Keras's variables compare by value.
_changed: MutableMapping[tuple[int, int], Any] = WeakValueDictionary()
# This replica's share of the only batch since they were averaged, by the same keys.
_weights: dict[tuple[int, int], float] = {}


def of_replica(model: keras.Model) -> list[Any]:
    """Return the floating-point state that a training step may change without an optimizer.

    It does not include:

    - frozen weights, which do not change, or which a user's own step assigns equally on all
      replicas;
    - the state of layers that were created outside of the strategy, such as a Normalization that
      was adapted before.
    """
    return [one for one in _own_state(model) if _type_of(one).is_floating]


def of_users(model: keras.Model) -> list[Any]:
    """Return the part of `of_replica` that belongs to the script's own layers."""
    state = _own_state(model, is_of_users=True)
    return [one for one in state if _type_of(one).is_floating]


def whole_numbers(model: keras.Model) -> list[Any]:
    """Return the integers and booleans that a training step may change; see `of_replica`.

    Keras's own layers change none.
    """
    state = _own_state(model, is_of_users=True)
    return [one for one in state if _type_of(one).is_integer or _type_of(one).is_bool]


def weights(model: keras.Model) -> list[Any]:
    """Return the weights that were created as trainable, including frozen ones."""
    layers = keras_names.layers_within(model)
    found = [one for layer in layers for one in keras_names.own_trainable(layer)]
    return [one for one in found if step_context.is_of_all(one)]


def rates(model: keras.Model) -> list[Any]:
    """Return the learning rates of a model's optimizers that are variables."""
    found = [keras_names.rate_variable(one) for one in keras_names.optimizers_of(model)]
    return [one for one in found if one is not None and step_context.is_of_all(one)]


def of_optimizers(model: keras.Model) -> list[Any]:
    """Return the state of a model's optimizers, such as velocities, except their learning rates."""
    optimizers = keras_names.optimizers_of(model)
    found = [variable for one in optimizers for variable in one.variables]
    known = {id(one) for one in rates(model)}
    return [one for one in found if id(one) not in known and step_context.is_of_all(one)]


def _own_state(model: keras.Model, *, is_of_users: bool = False) -> list[Any]:
    """Return the variables of layers other than weights.

    Args:
        model: the model with the layers.
        is_of_users: whether to omit layers of Keras's own classes. Models of Keras's classes are
            included, because a script may have made a variable an attribute of one.
    """
    found: list[Any] = []
    for layer in keras_names.layers_within(model):
        is_keras_own = type(layer).__module__.startswith("keras.")
        if is_of_users and is_keras_own and not isinstance(layer, keras.Model):
            continue
        found += keras_names.own_non_trainable(layer)  # without weights, even if they are frozen
        found += plain_variables(layer)
    return [one for one in {id(one): one for one in found}.values() if step_context.is_of_all(one)]


def plain_variables(layer: Any) -> Iterator[tf.Variable]:
    """Yield a layer's attributes that are TensorFlow's own variables, unknown to Keras.

    Variables in a list, a tuple or a dictionary are found if the first item is a variable.
    """
    for value in vars(layer).values():
        values = [*value.values()] if isinstance(value, dict) else value
        if not isinstance(values, (list, tuple)):
            values = [values]
        if values and isinstance(values[0], tf.Variable):  # a list of other things may be long
            yield from (one for one in values if isinstance(one, tf.Variable))


def of_share(model: keras.Model) -> list[Any]:
    """Return the state of `of_replica` that may depend on the replica's share of a batch.

    It does not include the averages of a synchronized layer, which depend on the whole batch.
    """
    layers = keras_names.layers_within(model)
    synchronized = [one for one in layers if getattr(one, "synchronized", False)]
    of_all = {id(one) for layer in synchronized for one in layer.non_trainable_variables}
    return [one for one in of_replica(model) if id(one) not in of_all]


def momenta(model: keras.Model) -> dict[int, float]:
    """Return the momenta of the moving averages that BatchNorm layers keep, by variables' `id`s."""
    layers = keras_names.layers_within(model)
    found = [one for one in layers if isinstance(one, keras.layers.BatchNormalization)]
    return {id(one): layer.momentum for layer in found for one in layer.non_trainable_variables}


def of_metrics(model: keras.Model) -> list[Any]:
    """Return the variables of all metrics in a model; see `metrics_within`."""
    return [variable for metric in metrics_within(model) for variable in metric.variables]


def metrics_within(model: keras.Model) -> list[keras.Metric]:
    """Return all metrics in a model, also those that `model.metrics` omits."""
    found = [*model.metrics]
    for layer in keras_names.layers_within(model):
        found += keras_names.own_metrics(layer)
        found += [one for one in vars(layer).values() if isinstance(one, keras.Metric)]
    return [*{id(one): one for one in found}.values()]


def summed_of(variables: Iterable[Any]) -> list[Any]:
    """Return the variables of metrics whose sum over replicas is that of one device."""
    return [one for one in variables if one.aggregation == "sum"]


def note_changes(model: keras.Model, weight: float | None = None) -> None:
    """Note that training steps have changed a model's statistics, separately on each replica.

    Args:
        model: the model.
        weight: the fraction of the batch's examples that this replica has, if the shares differ in
            size, and the statistics were equal before the step; None: their plain mean is right.
    """
    by_key = _by_key(model)
    _changed.update(by_key)
    for key in by_key:
        _weights.pop(key, None)
    if weight is not None:
        _weights.update(dict.fromkeys(by_key, weight))


def are_weighted(model: keras.Model) -> bool:
    """Tell whether statistics must be averaged before the next step, by the last step's weight."""
    # An `id` in `_weights` may be that of a variable that is gone; `_changed` forgets these.
    return any(key in _weights and key in _changed for key in _by_key(model)) if _weights else False


def are_changed(model: keras.Model) -> bool:
    """Tell whether there are statistics to average."""
    return bool(not_averaged(model))


def not_averaged(model: keras.Model) -> list[Any]:
    """Return the statistics that steps have changed since they were last averaged."""
    return [one for key, one in _by_key(model).items() if key in _changed] if _changed else []


def _by_key(model: keras.Model) -> dict[tuple[int, int], Any]:
    ring = ring_of(model.distribute_strategy)
    generation = ring.generation if ring else 0
    return {(generation, id(one)): one for one in of_replica(model)}


def average(model: keras.Model, strategy: tf.distribute.Strategy) -> None:
    """Set a model's statistics to the mean over all replicas, on all of them.

    A strategy of the script averages all statistics, because a user's own loop may have changed
    them. A ring, and the strategy of a script without one, average only statistics that steps have
    changed. Others are the script's, which may have assigned to the first device's copy.
    """
    if count_of(strategy) == 1:
        return
    by_key = _by_key(model)
    changed = [key for key in by_key if _changed.pop(key, None) is not None]
    is_ours = ring_of(strategy) or local_devices.is_of_all(strategy)
    weights = {key: _weights.pop(key) for key in changed if key in _weights}
    variables = [by_key[key] for key in (changed if is_ours else by_key) if key not in weights]
    if variables:
        make = partial(_averaging_of, variables, strategy)
        of_model.of(model).function("average", variables, make)()
    if weights:
        weighted = [by_key[key] for key in weights]
        function = of_model.of(model).function
        weigh = function("weighted average", weighted, partial(_weighting_of, weighted))
        weigh(tf.constant([*weights.values()], tf.float64))


def _weighting_of(variables: list[Any]) -> Callable[[tf.Tensor], Any]:
    """Return a function that sets statistics to means, weighted by a number for each; see loops."""

    def weigh(weights: tf.Tensor) -> None:
        copies, each = [step_context.own(one) for one in variables], tf.unstack(weights)
        values = [tf.cast(one, tf.float64) for one in copies]
        # A borrowed example's statistics may be NaN.
        parts = [tf.math.multiply_no_nan(*pair) for pair in zip(values, each, strict=True)]
        *sums, totals = summed([*parts, weights], "the averages of BatchNorm")
        for copy, one, total in zip(copies, sums, tf.unstack(totals), strict=True):
            copy.assign(tf.cast(one / total, copy.dtype))

    weighing: Callable[[tf.Tensor], Any] = function_of(weigh)
    return weighing


def _averaging_of(variables: list[Any], strategy: tf.distribute.Strategy) -> Callable[[], Any]:
    def on_replica() -> None:
        values = [tf.identity(step_context.own(one)) for one in variables]
        local = Replicas.of(strategy).local if ring_of(strategy) else 1
        means = means_of(values, "the averages of BatchNorm", local)
        for variable, mean in zip(variables, means, strict=True):
            step_context.own(variable).assign(mean)

    averaging: Callable[[], Any] = function_of(lambda: strategy.run(on_replica))
    return averaging


def means_of(values: list[tf.Tensor], what: str, local: int = 1) -> list[tf.Tensor]:
    """Return each value's mean over all replicas; call it in a replica context.

    Values that are equal on all replicas are returned unchanged. Their rounded mean may differ from
    them, and a frozen layer's statistics must not change.

    Args:
        values: this replica's values.
        what: a name for the values in messages; see `summed`.
        local: the number of a worker's replicas that are summed before the workers' sums.
    """
    sums, total = summed(values, what), count()
    of_equal = _times(_times(values, tf.constant(local)) if local > 1 else values, total // local)
    are_same = [
        tf.reduce_all(over_all == equal) for over_all, equal in zip(sums, of_equal, strict=True)
    ]
    return [
        tf.where(is_same, value, over_all / tf.cast(total, value.dtype))
        for is_same, value, over_all in zip(are_same, values, sums, strict=True)
    ]


def _times(values: list[tf.Tensor], total: tf.Tensor) -> list[tf.Tensor]:
    """Return the sum of `total` copies of each value, added one by one, as replicas are added."""

    def add(done: tf.Tensor, *sums: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return done + 1, *(one + value for one, value in zip(sums, values, strict=True))

    _, *sums = tf.while_loop(lambda done, *_: done < total, add, (1, *values))
    return list(sums)


def _type_of(variable: Any) -> tf.DType:
    return tf.as_dtype(variable.dtype)
