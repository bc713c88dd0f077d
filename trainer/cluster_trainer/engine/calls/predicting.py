"""Runs `predict`, whose rows may differ between workers."""

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache, wraps
from typing import Any
from weakref import WeakSet

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.replicas import Replicas, ring_of
from cluster_trainer.engine import running
from cluster_trainer.engine.calls.announced import announcement_of, explained_by_batch
from cluster_trainer.engine.calls.in_step import average
from cluster_trainer.engine.calls.others import average_before
from cluster_trainer.engine.data.same_data import RowsOfItsOwnError
from cluster_trainer.engine.first_batch.program_parts import across_examples
from cluster_trainer.engine.predictions import Predictions, are_few, build_to_predict
from cluster_trainer.engine.replicas import statistics
from cluster_trainer.engine.same_values import alike

log = logging.getLogger("trainer")
_warned: WeakSet[Any] = WeakSet()


def batch_by_batch(predict: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `predict` that shares the rows among the replicas, unless they are a worker's own.

    Over a ring, each worker predicts a small number of rows by itself, because other workers may
    have different ones, such as the states of a game, or noise. It also predicts a large number by
    itself if the workers find that their rows differ.
    """
    signature = inspect.signature(predict)

    @wraps(predict)
    def predict_batches(self: Any, *arguments: Any, **keywords: Any) -> Any:
        def run() -> Any:
            average_before(self)
            return predict(self, *arguments, **keywords)

        call = announcement_of("predict", self, None, ())
        call.one_batch_a_call = self.steps_per_execution == 1
        call.asked = WeakSet()  # each batch would ask whether all workers have the model
        rows = signature.bind(self, *arguments, **keywords).arguments.get("x")
        if ring_of(self.distribute_strategy) and are_few(rows):
            return _by_itself(self, (rows,), run, call)
        _warn_of_parts(self)
        try:
            with (
                running.announced(call),
                process_ring.failure_told(),
                explained_by_batch(self, call),
            ):
                return run()
        except RowsOfItsOwnError as error:
            _say_of_own_rows()
            return _by_itself(self, error.spec, run, call)

    return predict_batches


def _warn_of_parts(model: Any) -> None:
    """Warn once of layers that compute over a batch, of which each replica sees only its share."""
    if model in _warned or Replicas.of(model.distribute_strategy).total == 1:
        return
    if parts := across_examples.found_in_predictions(model):
        _warned.add(model)
        log.warning(
            "predict: rows may differ from one device's, because a device sees only its share of "
            "a batch: %s",
            "; ".join(parts),
        )


def _by_itself(model: Any, rows: Any, run: Callable[[], Any], call: running.Running) -> Any:
    """Return this worker's predictions, without the other workers.

    The others may predict at other times, or not at all. All workers meet before a model's first
    prediction, to get the chief's values, and if steps have changed its statistics, to average
    these. `rows` are the given rows, or their specification.
    """

    def alone() -> Any:
        call_of_one = replace(call, watched=replace(call.watched, agree=None))
        with running.announced(call_of_one), _alone(model), explained_by_batch(model, call_of_one):
            return run()

    with process_ring.failure_told():
        try:
            build_to_predict(model, rows)
        except Exception:  # noqa: BLE001  symbols cannot build the model, but a prediction can
            alone()
        # Outside of a fit a model gets values once, and not at each call.
        with running.announced(call) if running.is_in_fit() else nullcontext():
            alike.make_once(model)
        if statistics.are_changed(model):
            average(model)
        return alone()


@contextmanager
def _alone(model: Any) -> Iterator[None]:
    """Let a model predict without the other workers, and keep its function for the next time."""
    of_all = model.make_predict_function()
    model.predict_function = getattr(of_all, "alone", None)
    try:
        with process_ring.left_out():
            yield
    finally:
        lone, model.predict_function = model.predict_function, of_all
        if isinstance(of_all, Predictions):
            of_all.alone = lone


@cache
def _say_of_own_rows() -> None:
    log.info(
        "predict: the workers have different rows, such as random noise, so each predicts its own "
        "rows"
    )
