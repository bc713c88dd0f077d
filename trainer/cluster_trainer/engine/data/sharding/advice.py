"""Explains why every worker prepares all rows of a pipeline, and advises a change."""

import inspect
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from cluster_trainer.engine.data.pipelines import steps_of
from cluster_trainer.engine.data.sharding.plan import (
    Plan,
    have_one_shape,
    is_dense,
    is_map,
    is_passed,
)
from cluster_trainer.engine.data.sharding.stateless import state_of
from cluster_trainer.engine.functions import nodes_within
from cluster_trainer.private import tensorflow_names
from cluster_trainer.user_frames import last_of_a_user

GENERATOR = "GeneratorDataset"
MAPS = ("MapDataset", "ParallelMapDataset")
"""The beginnings of the names of TensorFlow's operations for `map`."""


def advice_on(plan: Plan) -> str:
    """Return the reason why a costly step runs for all rows, and advice; "" without advice.

    There is no advice for a step before a `cache`, because the step runs only once. Rows without a
    fixed order are left to pipelines.py, which warns about them.
    """
    step = plan.whole
    while is_passed(step):
        (step,) = tensorflow_names.inputs_of(step)
    is_cache = type(step).__name__ in tensorflow_names.CACHES
    if is_cache or _gives_what_is_ready(step) or _gives_what_is_ready(plan.whole):
        return ""
    operations = {*_operations(step)}
    if GENERATOR in operations:
        return (
            "a generator makes the rows. Give `fit` an object with `__len__` and `__getitem__` "
            "instead, or read files in a `map`"
        )
    if is_map(step):
        return _on_map(step, plan)
    return _on_order(step, plan) if any(one.startswith(MAPS) for one in operations) else ""


def _gives_what_is_ready(step: Any) -> bool:
    is_one = tensorflow_names.gives_what_is_ready(step)
    return is_one or step.options().deterministic is False


def _operations(step: Any) -> Iterator[str]:
    """Yield the types of the operations in a step, in all earlier steps, and in their functions."""
    for one in steps_of(step):
        if is_map(one):
            yield MAPS[0]
        for graph in tensorflow_names.graphs_of(one):
            yield from (node.op for node in nodes_within(graph))


def _on_map(step: Any, plan: Plan) -> str:
    if state := state_of(tensorflow_names.traced_map(step)):
        return (
            f"{_named(step)} may depend on earlier calls: {state}. Draw with "
            "`tf.random.stateless_…` and a seed from the data, or in the model; call Python by "
            "`tf.numpy_function(…, stateful=False)` if it keeps no state"
        )
    if plan.batch is None:
        return f"{_named(step)} prepares whole batches. Call `map` before `batch`"
    if is_dense(step) and not have_one_shape(step):
        return f"{_named(step)} does not tell the shape of a row. Call `set_shape` in it"
    return ""


def _named(step: Any) -> str:
    """Return words for a `map` with the name of its function, and its place in the user's code."""
    function = tensorflow_names.functions_of(step)[0]
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(getattr(function, "python_function", function))
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    place = last_of_a_user([(code.co_filename, code.co_firstlineno)]) if code else ""
    shown = [one for one in (name.rpartition("<locals>.")[2], place) if one and one != "<lambda>"]
    return f"a `map` ({', '.join(shown)})" if shown else "a `map`"


def _on_order(step: Any, plan: Plan) -> str:
    name = _name_of(step)
    if plan.batch is not None:
        return f"a `map` comes before `{name}`. Call `map` after `{name}`, and before `batch`"
    if name == "padded_batch":
        return "rows are padded to the longest of a batch. Pad them in a `map`, and call `batch`"
    return f"`{name}` comes after `batch`. Call `{name}` first, then `map`, then `batch`"


def _name_of(step: Any) -> str:
    """Return the name of the `tf.data.Dataset` method that made a step, such as `padded_batch`."""
    kind = type(step).__name__.strip("_").removeprefix("Parallel").partition("Dataset")[0]
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()
