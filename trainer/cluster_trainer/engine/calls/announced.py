"""Announces a `fit` or an `evaluate` to the parts of the engine that Keras calls for it."""

import inspect
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from cluster_trainer.collectives import process_ring
from cluster_trainer.engine import running, variable_reads
from cluster_trainer.engine.calls.in_step import average, keeps_in_step
from cluster_trainer.engine.calls.others import average_before
from cluster_trainer.engine.failed_step.explained import explained
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.private import keras_names, tensorflow_names

log = logging.getLogger("trainer")
# (a function that runs the fit, its bound arguments, its announcement) -> History
AroundFit = Callable[[Callable[..., Any], inspect.BoundArguments, running.Running], Any]
KerasTrainer = keras_names.TensorFlowTrainer


def seed_of_fit(number: int) -> int:
    """Return the seed for the order of a fit's data.

    It is drawn from the script's global seed, which is the same on all workers, for example after
    `keras.utils.set_random_seed`. Without a global seed it is the fit's number.
    """
    if tensorflow_names.global_seed() is None:
        return number
    return int(tensorflow_names.next_operation_seed())


def own_functions(model: Any) -> list[str]:
    """Return the names of the `make_…_function` methods that a model overrides."""
    makers = ("make_train_function", "make_test_function", "make_predict_function")
    return [
        name for name in makers if getattr(type(model), name) is not getattr(KerasTrainer, name)
    ]


def _has_own_functions(model: Any) -> bool:
    """Tell whether a model has own functions, and warn: Keras runs it without the engine."""
    if own := own_functions(model):
        log.warning(
            "%s has its own %s: Keras trains it without the engine and without checkpoints, and "
            "the result depends on the number of replicas",
            type(model).__name__,
            ", ".join(own),
        )
        return True
    return False


def announced_fit(fit: Callable[..., Any], around: AroundFit) -> Callable[..., Any]:
    """Return a `fit` that is announced, and that `around` runs.

    Keras runs it without `around` within another `fit`, if the model has functions of its own, and
    under a strategy that the engine does not support.
    """
    signature = inspect.signature(fit)

    @wraps(fit)
    def fit_announced(self: Any, *arguments: Any, **keywords: Any) -> Any:
        given = signature.bind(self, *arguments, **keywords)
        call = announcement_of("fit", self, given.arguments.get("callbacks"), running.FIT_HOOKS)
        call, is_inner = replace(call, is_fit=True), running.is_in_fit()  # a callback's fit
        if is_inner or call.has_own_functions or not keeps_in_step(self.distribute_strategy):
            variable_reads.note(self)
            order = running.Order(seed=seed_of_fit(0))
            return _run(fit, given, replace(call, order=order))
        with step_context.outside():  # of the body of a script's own loop
            return around(partial(_run, fit), given, call)

    return fit_announced


def _run(fit: Callable[..., Any], given: inspect.BoundArguments, call: running.Running) -> Any:
    model = given.args[0]
    with running.announced(call), process_ring.failure_told(), explained_by_batch(model, call):
        history = fit(*given.args, **given.kwargs)
        average(model)
    return history


def explained_by_batch(model: Any, call: running.Running) -> AbstractContextManager[None]:
    """Explain a failure within the context, with the help of the call's batches."""
    return explained(model, call.name, lambda: call.again())  # noqa: PLW0108  it is set later


def announced_evaluate(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `evaluate` that is announced."""
    signature = inspect.signature(evaluate)

    @wraps(evaluate)
    def evaluate_announced(self: Any, *arguments: Any, **keywords: Any) -> Any:
        callbacks = signature.bind(self, *arguments, **keywords).arguments.get("callbacks")
        # Keras marks the fit's own validations, but not those of callbacks.
        is_fits = bool(keywords.get(keras_names.IS_VALIDATION_OF_FIT))
        call = announcement_of("evaluate", self, callbacks, running.TEST_HOOKS, is_fits=is_fits)
        with running.announced(call), process_ring.failure_told(), explained_by_batch(self, call):
            average_before(self)
            return evaluate(self, *arguments, **keywords)

    return evaluate_announced


def announcement_of(
    name: str, model: Any, callbacks: Any, hooks: tuple[str, ...], *, is_fits: bool = False
) -> running.Running:
    """Return the announcement of a call.

    Args:
        name: the call's name, such as "fit".
        model: the model that is called.
        callbacks: the call's argument `callbacks`.
        hooks: the names of the callbacks' methods that Keras calls for each batch.
        is_fits: whether this is the running fit's own validation. It may end the fit; an
            `evaluate` that a callback calls may not.
    """
    wanting = running.wants_each_batch(callbacks, hooks) if model.steps_per_execution == 1 else []
    if wanting:
        log.info("one step per call, because %s has hooks for each batch", ", ".join(wanting))
    watched = running.current().watched
    return replace(  # a validation has the stops and limits of its fit
        running.current(),
        name=name,
        one_batch_a_call=bool(wanting),
        has_own_functions=_has_own_functions(model),
        is_of_callback=running.is_in_fit() and not is_fits,
        has_iterator=running.is_in_fit(),  # a fit's data may call `predict` before it exists
        watched=watched if is_fits else replace(watched, meet=lambda: None),
    )
