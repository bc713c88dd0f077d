"""Reduces gradients over all replicas before anything else uses them.

Keras's own optimizers sum last (`_backend_update_step` in
keras/src/backend/tensorflow/optimizer.py): each replica clips its own part, LossScaleOptimizer
looks for overflows on the first replica alone, and `gradient_accumulation_steps` fails.

Here all replicas have the same gradients before an optimizer begins. Each replica then updates its
own copies of the variables, which therefore stay equal. The optimizer itself exchanges nothing, so
it may act under a condition. A user's own `apply` or `apply_gradients` also gets the summed
gradients.

In a step that a worker takes by itself (rounds.py) an optimizer gets its share's own gradients.
"""

import inspect
import itertools
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import Any
from weakref import WeakSet

import keras
import tensorflow as tf

from cluster_trainer.collectives import local_devices, process_ring
from cluster_trainer.collectives.merge_refusals import outside_branches
from cluster_trainer.collectives.replicas import Gradient, begin_sums, count, gathered
from cluster_trainer.engine.building import copied_weights
from cluster_trainer.engine.replicas import sparse, step_context
from cluster_trainer.engine.waits import SUMS
from cluster_trainer.private import at_call, keras_names, tensorflow_names
from cluster_trainer.problems import ConfigurationError, Problem

SHOWN = 5
APART = "TRAINER_SYNC_EVERY"
SCALES_LOSS = Problem(
    APART,
    "above 1, with a LossScaleOptimizer",
    "1, or layers of float32 or bfloat16",
    "Each worker would arrive at a different scale, and skip different steps.",
)
OVERWRITES = Problem(
    APART,
    "above 1, with layers of float8",
    "1, or layers of float32 or bfloat16",
    "Their scales are the maximum over all workers in each step.",
)
TRACED_OTHERWISE = Problem(
    APART,
    "above 1 or auto, with a `tf.function` of the script's own that applies gradients",
    "1, or gradients that are applied outside of such functions",
    "TensorFlow keeps the function as it was traced, with sums over the workers or without.",
)
CLIPPED, BACKWARDS = re.compile(r"(^|/)clip_by_\w+"), "gradient_tape"
log = logging.getLogger("trainer")


def begin_means(
    gradients: Sequence[Gradient | None], weight: tf.Tensor
) -> Callable[[], list[Gradient | None]]:
    """Begin to compute the means of all replicas' gradients, weighted by their shares.

    Returns:
        a function that waits for the means and returns them.
    """
    return begin_sums_of([None if one is None else _times(one, weight) for one in gradients])


def begin_sums_of(gradients: Sequence[Gradient | None]) -> Callable[[], list[Gradient | None]]:
    """Begin to sum all replicas' gradients; return a function that waits for the sums."""
    present = [one for one in gradients if one is not None]
    wait = begin_sums(present, "training (gradients)", wire=process_ring.gradients_wire())
    ways = [sparse.way_of(one) for one in present]

    def sums() -> list[Gradient | None]:
        found = (way(total) for way, total in zip(ways, wait(), strict=True))
        return [None if one is None else next(found) for one in gradients]

    return sums


def _times(gradient: Gradient, weight: tf.Tensor) -> Gradient:
    """Return a gradient multiplied by a weight. With weight 0, NaN becomes 0, too."""
    weight = tf.cast(weight, gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        values = tf.math.multiply_no_nan(gradient.values, weight)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return tf.math.multiply_no_nan(gradient, weight)


def seeing_to_the_class(initialize: Callable[..., None]) -> Callable[..., None]:
    """Wrap the methods of an optimizer's class so that they reduce first; once for each class."""

    @wraps(initialize)
    def see_to_the_class(self: Any, *arguments: Any, **keywords: Any) -> None:
        kind = type(self)
        for name, wrap in WRAPS.items():
            method = getattr(kind, name)
            if method not in _reduce_first:
                reducing = wrap(method)
                _reduce_first.add(reducing)
                setattr(kind, name, reducing)
        initialize(self, *arguments, **keywords)

    return see_to_the_class


def seeing_to_the_method(set_attribute: Callable[..., None]) -> Callable[..., None]:
    """Wrap a method that is set on a single optimizer, so that it reduces first."""

    @wraps(set_attribute)
    def see_to_the_method(self: Any, name: str, value: Any) -> None:
        if (wrap := WRAPS.get(name)) and callable(value):
            value = partial(wrap(_without_self(value)), self)
        set_attribute(self, name, value)

    return see_to_the_method


def _without_self(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as a method that ignores its first argument, the optimizer."""

    @wraps(function)
    def method(_: Any, *arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    ignored = inspect.Parameter("optimizer_itself", inspect.Parameter.POSITIONAL_ONLY)
    parameters = inspect.signature(function).parameters.values()
    method.__signature__ = inspect.Signature([ignored, *parameters])  # type: ignore[attr-defined]
    return method


def _reducing(method: Callable[..., Any], *, takes_pairs: bool) -> Callable[..., Any]:
    """Wrap an `apply`, or an `apply_gradients`, which takes pairs: it gets reduced gradients."""
    names = _names_of_two(method)

    @wraps(method)
    def reduce_and_apply(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if not step_context.applies():
            return None
        first, *more = _in_order(names, arguments, keywords)
        # Lists: an iterator can be read once only.
        if takes_pairs:
            pairs = list(first)
            gradients, variables = [one for one, _ in pairs], [one for _, one in pairs]
            with _over_all(self, gradients, variables) as over_all:
                return method(self, [*zip(over_all, variables, strict=True)], *more, **keywords)
        if more and more[0] is not None:
            more[0] = list(more[0])
        with _over_all(self, first, more[0] if more else None) as over_all:
            return method(self, over_all, *more, **keywords)

    return reduce_and_apply


def _names_of_two(method: Callable[..., Any]) -> list[str]:
    """Return the names of the first two arguments of a class's method, after `self`."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    _, *parameters = inspect.signature(method).parameters.values()
    return [one.name for one in parameters if one.kind is kind][:2]


def _in_order(
    names: Sequence[str], arguments: Sequence[Any], keywords: dict[str, Any]
) -> list[Any]:
    """Return arguments in order, and move named ones here from `keywords`."""
    given = [*arguments]
    for name in names[len(given) :]:
        if name not in keywords:
            break
        given.append(keywords.pop(name))
    return given


@contextmanager
def _over_all(
    optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any] | None
) -> Iterator[Sequence[Any]]:
    """Yield the gradients of all replicas, or the given gradients if they are not a share's."""
    part = step_context.current()
    if part is None:
        _warn_of_training_alone()
        yield gradients
        return
    part.optimizers[id(optimizer)] = optimizer
    if not optimizer.built and variables:  # Keras reports missing variables
        _build(optimizer, variables)
    if part.is_reduced or not len(gradients):
        yield gradients
        return
    if part.prepare:
        part.prepare(optimizer, variables or _variables_of(optimizer))
    over_all = _reduced(optimizer, gradients, variables, part)
    with step_context.reduced(part):
        yield over_all


def _reduced(
    optimizer: Any,
    gradients: Sequence[Any],
    given_variables: Sequence[Any] | None,
    part: step_context.Share,
) -> Sequence[Any]:
    """Return the sums of the replicas' gradients, and the maxima for overwritten variables.

    In a step that a worker takes by itself, return the share's own gradients.
    """
    _must_be_of_the_strategy(optimizer)
    if any(map(_is_clipped, gradients)):
        _warn_of_clipped_shares()
    _must_know(optimizer, given_variables or ())
    variables = given_variables or _variables_of(optimizer)
    factor = _factor(optimizer, gradients, variables)
    if part.is_own_step:
        return _own(optimizer, gradients, variables, part)
    gradients = _of_known_shapes(gradients, variables)
    places = _overwriting(gradients, variables)
    summed = [None if place in places else one for place, one in enumerate(gradients)]
    sums = begin_sums_of(summed) if factor is None else begin_means(summed, factor)
    over_all = part.waits.measured(SUMS, summed, sums) if part.waits else sums()
    for place, most in zip(
        places, _maxima([gradients[place] for place in places], part.weight), strict=True
    ):
        over_all[place] = most
    if part.first_batch is not None:
        part.first_batch.note_gradients(gradients, over_all)
    return over_all


def _factor(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> tf.Tensor | None:
    """Return the factor of the replica's gradients in the sum; None: it is already applied.

    Also note the variables that the optimizer trains. A function of the script's own that applies
    gradients notes them again at each call.

    Raises:
        ConfigurationError: the function was traced in the other kind of step; see rounds.py.
    """
    part = step_context.current()
    assert part is not None  # noqa: S101  the gradients are a share's
    is_own_step = part.is_own_step
    trained = {id(step_context.own(one)) for one in variables}
    gathers = any(isinstance(one, tf.IndexedSlices) for one in gradients)

    def find(part: step_context.Share) -> Any:
        if part.is_own_step != is_own_step:
            raise ConfigurationError([TRACED_OTHERWISE])
        part.optimizers[id(optimizer)] = optimizer
        part.trained |= trained
        part.gathers |= gathers
        is_weighted = optimizer in part.weighted
        _must_be_as_went_back(part, is_weighted=is_weighted)
        return tf.ones([]) if is_weighted else part.weight

    def outside() -> Any:  # for example after a loop over `share`: the function still sums
        return 1 / count()

    key = "gradients", id(optimizer), next(_numbers)
    factor = step_context.of_step(find, key, outside=outside)
    is_here = part.graph is at_call.graph_here()
    return None if is_here and optimizer in part.weighted else factor


def _own(
    optimizer: Any,
    gradients: Sequence[Gradient | None],
    variables: Sequence[Any],
    part: step_context.Share,
) -> Sequence[Gradient | None]:
    """Return the share's own gradients, for a step that the worker takes by itself.

    Without examples they are 0, and still applied, so that step counters stay equal.
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        part.problems.append(SCALES_LOSS)
    if _overwriting(gradients, variables):
        part.problems.append(OVERWRITES)
    return [None if one is None else _times(one, part.of_gradient) for one in gradients]


def _overwriting(gradients: Sequence[Any], variables: Sequence[Any]) -> list[int]:
    """Return the positions of values that overwrite their variables, and are not gradients.

    Examples are the scales and histories of a layer that was quantized to float8.
    """
    return [
        place
        for place, (gradient, variable) in enumerate(zip(gradients, variables, strict=False))
        if gradient is not None and getattr(variable, "overwrite_with_gradient", False)
    ]


def _maxima(values: Sequence[tf.Tensor], weight: tf.Tensor) -> list[tf.Tensor]:
    """Return each value's exact maximum over the replicas that have examples.

    Keras accumulates new values in the same way (`_overwrite_variables_directly_with_gradients`).
    The maximum of all shares' maxima is the batch's maximum.
    """
    found: dict[int, tf.Tensor] = {}
    for dtype in dict.fromkeys(value.dtype for value in values):
        places = [place for place, value in enumerate(values) if value.dtype == dtype]
        flat = [tf.reshape(values[place], [-1]) for place in places]
        row = tf.where(weight > 0, tf.concat(flat, 0), dtype.min)[tf.newaxis]
        most = tf.reduce_max(gathered(row, "training (new values)"), 0)
        for place, one in zip(places, tf.split(most, [*map(tf.size, flat)]), strict=True):
            shaped = tf.reshape(one, tf.shape(values[place]))
            found[place] = tf.ensure_shape(shaped, values[place].shape)
    return [found[place] for place in range(len(values))]


def _of_known_shapes(
    gradients: Sequence[Gradient | None], variables: Sequence[Any]
) -> Sequence[Gradient | None]:
    """Return gradients with their variables' shapes, so that all workers pack them equally.

    TensorFlow does not always know a gradient's shape, for example that of a Dense layer after
    texts of any length. It may know the shape on a worker whose shares all had one size, but not on
    another worker.
    """
    if len(gradients) != len(variables):  # Keras refuses it
        return gradients
    return [
        tf.ensure_shape(one, variable.shape)
        if isinstance(one, tf.Tensor) and not one.shape.is_fully_defined()
        else one
        for one, variable in zip(gradients, variables, strict=True)
    ]


def _variables_of(optimizer: Any) -> Sequence[Any]:
    """Return the variables that an optimizer was built with; a call of `apply` may omit them."""
    return keras_names.trained_by(getattr(optimizer, "inner_optimizer", optimizer))


def _is_clipped(gradient: Gradient | None) -> bool:
    """Tell whether TensorFlow's or Keras's clipping has made a gradient, by its operation's name.

    Operations in the backward pass, such as those of a clipped activation, do not count.
    """
    tensor: Any = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    name = tensor.op.name if hasattr(tensor, "graph") else ""  # eager tensors have none
    return bool(CLIPPED.search(name)) and BACKWARDS not in name


@cache
def _warn_of_clipped_shares() -> None:
    log.warning(
        "A train_step clips gradients before it applies them: with several replicas each clips "
        "the gradients of its share, not those of the batch. Use the optimizer's `clipnorm`, "
        "`global_clipnorm` or `clipvalue` to clip those of the batch."
    )


@cache
def _warn_of_training_alone() -> None:
    """Warn once that a script's own loop trains each worker alone, if a ring is requested."""
    if process_ring.is_wanted() and not tf.distribute.has_strategy():
        log.warning(
            "An optimizer was applied outside of Keras's fit and train_on_batch, for example by "
            "the script's own training loop: there the workers' gradients are not summed, and "
            "each worker trains separately. To train together, iterate over each worker's share: "
            "`for batch in cluster_trainer.share(dataset, model)`."
        )


def _must_be_of_the_strategy(optimizer: Any) -> None:
    """Refuse an optimizer whose step counter all replicas of a process would share and increment.

    Raises:
        ValueError: it was created outside of the strategy's scope.
    """
    counter = keras_names.step_counter(getattr(optimizer, "inner_optimizer", optimizer))
    if not step_context.is_of_all(counter):
        name = f"The optimizer {optimizer.name!r}"
        raise ValueError(
            f"{name} {step_context.OF_NO_PART}"
            if local_devices.is_of_all(tf.distribute.get_strategy())
            else f"{name} was made outside of the strategy's scope. Make it in "
            "`with strategy.scope():`, as the model."
        )


def _must_know(optimizer: Any, variables: Sequence[Any]) -> None:
    """Refuse variables that became trainable after an optimizer was built.

    Raises:
        ValueError: with their names, and a clearer text than Keras's.
    """
    if new := [*map(step_context.name_of, keras_names.unknown_to(optimizer, variables))]:
        raise ValueError(
            f"The optimizer {optimizer.name!r} was built without {', '.join(new[:SHOWN])}. Make "
            "layers trainable before `compile`, and give an optimizer all its variables at once: "
            "`optimizer.build(variables)`."
        )


def _must_be_as_went_back(part: step_context.Share, *, is_weighted: bool) -> None:
    """Refuse a step if a layer's sum over replicas has wrongly assumed how its losses are scaled.

    The backward pass through such a layer does not know to which loss a gradient belongs.

    Raises:
        ValueError: the step scales the losses of only some optimizers, or only after TensorFlow has
            traced the backward pass.
    """
    if part.summed_backwards - {is_weighted}:
        raise ValueError(
            "This step has a synchronized BatchNormalization, and calls `scale_loss` for only some "
            "of its optimizers, or outside of the `tf.function` that calls the layer. With several "
            "replicas call it for all optimizers of the step, in the function that calls the "
            "layer, and before any gradient is taken; or for none."
        )


def _build(optimizer: Any, trainable_variables: Sequence[Any]) -> None:
    """Create an optimizer's variables outside of the step that uses it for the first time.

    Keras has already done so for the optimizer given to `compile`, but not for further optimizers
    of a model's own `train_step`.
    """

    def of_all(strategy: tf.distribute.Strategy, variables: Sequence[Any]) -> None:
        with tf.init_scope(), strategy.scope():
            optimizer.build(variables)
            copied_weights.note(optimizer, variables)

    context = tf.distribute.get_replica_context()
    with outside_branches("training (an optimizer's variables)"):
        context.merge_call(of_all, args=(list(trainable_variables),))
    optimizer.built = True


def weighting(scale_loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a `scale_loss` that weights the loss by the share, so its gradients need no weight.

    This matters for float16: each example's part of a gradient is as large as on one device, and
    overflows only if it overflows there.
    """

    @wraps(scale_loss)
    def weight_and_scale(self: Any, loss: Any) -> Any:
        part = step_context.current()
        if part is None:
            return scale_loss(self, loss)

        def find(share: step_context.Share) -> Any:
            share.weighted.add(self)
            return share.of_gradient

        factor = step_context.of_step(find, ("loss", id(self)))
        part.weighted.add(self)
        # Also a loss for each example: its gradients become those of the sum (losses.py).
        return scale_loss(self, loss * tf.cast(factor, loss.dtype))

    return weight_and_scale


def is_reduced() -> bool:
    """Tell whether an optimizer applies the gradients of all replicas here."""
    part = step_context.current()
    return part is not None and part.is_reduced


def _only_looks() -> bool:
    """Tell whether all variables stay unchanged; see engine/first_batch/check.py."""
    part = step_context.current()
    return part is not None and part.first_batch is not None


def update_own_copies(self: Any, grads: Any, trainable_variables: Any, learning_rate: Any) -> None:
    """Update this replica's copies of variables."""
    if _only_looks():
        return
    for gradient, variable in zip(grads, trainable_variables, strict=True):
        self.update_step(gradient, step_context.own(variable), learning_rate)


def decay_own_copies(self: Any, variables: Sequence[Any]) -> None:
    """Let the weights of this replica's copies decay."""
    if self.weight_decay is None or _only_looks():
        return
    for variable in variables:
        copy = step_context.own(variable)
        if keras_names.is_decayed(self, copy):
            rate = tf.cast(self.learning_rate, copy.dtype)
            copy.assign_sub(copy * tf.cast(self.weight_decay, copy.dtype) * rate)


def accumulate_in_own(_: Any, grads: Sequence[Any], acc_grads: Sequence[Any]) -> None:
    """Add gradients to this replica's accumulators."""
    if _only_looks():
        return
    for gradient, accumulator in zip(grads, acc_grads, strict=True):
        copy = step_context.own(accumulator)
        copy.assign(copy + gradient)


def overwrite_own(self: Any, trainable_variables: Sequence[Any]) -> None:
    """Give this replica's copies the moving averages that `use_ema` keeps."""
    if _only_looks():
        return
    averages = keras_names.averages_of(self)
    for variable, average in zip(trainable_variables, averages, strict=True):
        step_context.own(variable).assign(step_context.own(average))


def assign(self: Any, value: Any) -> None:
    """Assign to a variable; an optimizer assigns to this replica's copies of its variables.

    Otherwise TensorFlow would send their values from the first replica, which it cannot do under a
    condition. A mirrored variable is not read after the assignment: TensorFlow would sum a metric's
    variable over all replicas for a value that is not used.
    """
    variable = keras_names.value_of(self)
    value = tf.cast(value, variable.dtype)
    part = step_context.current()
    if part is not None and part.is_of_loop and self.aggregation == "sum":
        # A metric in a script's own loop: a borrowed example is counted where it belongs.
        is_counted = part.has_examples | tf.reduce_all(value == 0)  # 0 is assigned by a reset
        value = tf.where(is_counted, value, variable)
    if is_reduced():
        step_context.own(self).assign(value)
    elif isinstance(variable, tensorflow_names.DistributedVariable):
        variable.assign(value, read_value=False)
    else:
        variable.assign(value)


WRAPS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "apply": partial(_reducing, takes_pairs=False),
    "apply_gradients": partial(_reducing, takes_pairs=True),
}
_reduce_first: WeakSet[Any] = WeakSet()
_numbers = itertools.count()
