"""Wraps `apply`, `apply_gradients` and `scale_loss` of all optimizers."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any
from weakref import WeakSet

import tensorflow as tf

from cluster_trainer.collectives.merge_refusals import outside_branches
from cluster_trainer.engine.building import copied_weights
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.engine.replicas.optimizers import refusals
from cluster_trainer.engine.replicas.optimizers.gradients import over_all_replicas, variables_of


def with_wrapped_class(initialize: Callable[..., None]) -> Callable[..., None]:
    """Wrap the methods of an optimizer's class so that they reduce first; once for each class."""

    @wraps(initialize)
    def wrap_and_initialize(self: Any, *arguments: Any, **keywords: Any) -> None:
        kind = type(self)
        for name, wrap in WRAPS.items():
            method = getattr(kind, name)
            if method not in _reduce_first:
                reducing = wrap(method)
                _reduce_first.add(reducing)
                setattr(kind, name, reducing)
        initialize(self, *arguments, **keywords)

    return wrap_and_initialize


def with_wrapped_attribute(set_attribute: Callable[..., None]) -> Callable[..., None]:
    """Wrap a method that is set on a single optimizer, so that it reduces first."""

    @wraps(set_attribute)
    def wrap_and_set(self: Any, name: str, value: Any) -> None:
        if (wrap := WRAPS.get(name)) and callable(value):
            value = partial(wrap(_without_self(value)), self)
        set_attribute(self, name, value)

    return wrap_and_set


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
        refusals.warn_of_training_alone()
        yield gradients
        return
    part.optimizers[id(optimizer)] = optimizer
    if not optimizer.built and variables:  # Keras reports missing variables
        _build(optimizer, variables)
    if part.is_reduced or not len(gradients):
        yield gradients
        return
    if part.prepare:
        part.prepare(optimizer, variables or variables_of(optimizer))
    over_all = over_all_replicas(optimizer, gradients, variables, part)
    with step_context.reduced(part):
        yield over_all


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


WRAPS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "apply": partial(_reducing, takes_pairs=False),
    "apply_gradients": partial(_reducing, takes_pairs=True),
}
_reduce_first: WeakSet[Any] = WeakSet()
