"""Notes which values in a step are results of metrics, whatever the step calls them in its logs.

A replica's result covers its own shares. So the result of all replicas takes its place in the logs;
see `logs.py`.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NamedTuple
from weakref import WeakSet

import keras
import tensorflow as tf

from cluster_trainer.engine.replicas import step_context


class Result(NamedTuple):
    """A number that a metric has returned.

    Attributes:
        metric: the metric.
        place: the number's place in the metric's result, which may be a structure.
    """

    metric: keras.Metric
    place: int


def with_wrapped_class(initialize: Callable[..., None]) -> Callable[..., None]:
    """Wrap the `result` of a metric's classes so that it notes its values; once for each class."""

    @wraps(initialize)
    def wrap_and_initialize(self: Any, *arguments: Any, **keywords: Any) -> None:
        kinds: tuple[Any, ...] = type(self).__mro__
        for kind in kinds:
            result = vars(kind).get("result")
            if callable(result) and result not in _noting:
                noting = _noting_results(result)
                _noting.add(noting)
                kind.result = noting
        initialize(self, *arguments, **keywords)

    return wrap_and_initialize


def _noting_results(result: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(result)
    def note_result(self: Any, *arguments: Any, **keywords: Any) -> Any:
        value = result(self, *arguments, **keywords)
        share = step_context.current()
        if share is not None and not share.is_of_loop:
            for place, one in enumerate(tf.nest.flatten(value)):
                share.results[id(one)] = one, Result(self, place)
        return value

    return note_result


def of(value: Any) -> Result | None:
    """Return the metric whose result a value of the present step is; None: it is no result."""
    share = step_context.current()
    _, result = share.results.get(id(value), (None, None)) if share else (None, None)
    return result


def computed_from(value: Any) -> list[str]:
    """Return the names of the metrics from whose results a value of a traced step is computed."""
    share = step_context.current()
    if share is None or not tf.is_symbolic_tensor(value):
        return []
    found: set[str] = set()
    waiting, seen = [value], set()
    while waiting:
        tensor = waiting.pop()
        if result := of(tensor):
            found.add(result.metric.name)
        elif tensor.op.name not in seen:
            seen.add(tensor.op.name)
            waiting += tensor.op.inputs
    return sorted(found)


def values(results: Iterable[Result]) -> list[Any]:
    """Return the present values of results; each metric is asked once."""
    flat: dict[int, list[Any]] = {}
    found = []
    for metric, place in results:
        if id(metric) not in flat:
            flat[id(metric)] = tf.nest.flatten(metric.result())
        found.append(flat[id(metric)][place])
    return found


_noting: WeakSet[Any] = WeakSet()
