"""Decides which steps of a tf.data pipeline a worker can run for its own rows alone.

    paths.shuffle(1000).map(decode).batch(64).prefetch(2)

In this example every worker reads and shuffles all paths, but decodes only the files of its share
of each batch. The search goes from the pipeline's end to its source. Three rules keep the batches
the same:

- A `map` of rows may be moved if it makes each row from one row, without state (stateless.py). A
  `map` of batches may be moved if it makes each row from the same row of the batch (row_wise.py).
- Steps between them may only choose elements by position: `take`, `skip`, `repeat`.
- All earlier steps stay the user's own dataset, which every worker reads whole. In particular a
  `shuffle` must stay: its object counts its iterators, and each iterator has another order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from cluster_trainer.engine.data.pipelines import shapes
from cluster_trainer.engine.data.sharding.row_wise import is_row_wise
from cluster_trainer.engine.data.sharding.stateless import is_stateless
from cluster_trainer.private import tensorflow_names

POSITIONS = (tensorflow_names.TAKE, tensorflow_names.SKIP, tensorflow_names.REPEAT)
"""Steps that choose elements by their position, and do not change them."""
PASSED = (*POSITIONS, tensorflow_names.PREFETCH, tensorflow_names.OPTIONS)
"""Steps that may come after a `map` that is moved."""


@dataclass(frozen=True)
class Plan:
    """The steps of a pipeline that each worker runs for all rows, and those for its own rows.

    Attributes:
        whole: the dataset of the last step that every worker runs for all rows.
        on_rows: the steps between `whole` and `batch`, in the data's order. The worker runs them
            for its own rows. Empty: no `map` can be moved.
        batch: the step that makes batches; None: it was not found.
        on_batches: the steps after `batch`, in the data's order.
    """

    whole: Any
    on_rows: Sequence[Any] = ()
    batch: Any = None
    on_batches: Sequence[Any] = ()


def is_map(step: Any) -> bool:
    """Tell whether a step of a pipeline is a `map`."""
    return type(step).__name__ in tensorflow_names.MAPS


def is_passed(step: Any) -> bool:
    """Tell whether a step leaves elements unchanged, and at most chooses them by position."""
    return type(step).__name__ in PASSED


def have_one_shape(rows: Any) -> bool:
    """Tell whether all rows have one shape; different shapes might fail only in a whole batch."""
    return all(shape.is_fully_defined() for shape in shapes(rows))


def is_dense(step: Any) -> bool:
    """Tell whether a step's elements consist of dense tensors only."""
    return all(isinstance(one, tf.TensorSpec) for one in tf.nest.flatten(step.element_spec))


def plan_of(dataset: tf.data.Dataset) -> Plan:
    """Return the plan of a pipeline: the steps for all rows, and those for a worker's own rows."""
    if dataset.options().deterministic is False:
        return Plan(dataset)
    on_batches, batch = _steps_before(dataset, _is_for_batches)
    if not _makes_batches(batch):
        return Plan(batch)
    (rows,) = tensorflow_names.inputs_of(batch)
    on_rows, whole = _steps_before(rows, _is_for_rows)
    while on_rows and not is_map(on_rows[0]):
        whole, *on_rows = on_rows
    if not (have_one_shape(rows) and all(map(is_dense, [whole, *on_rows, *on_batches]))):
        whole, on_rows = rows, []
    return Plan(whole, on_rows, batch, on_batches)


def _steps_before(dataset: Any, belongs: Callable[[Any], bool]) -> tuple[list[Any], Any]:
    """Return the last steps of a pipeline that belong together, and the step before them."""
    steps: list[Any] = []
    while belongs(dataset):
        steps.insert(0, dataset)
        (dataset,) = tensorflow_names.inputs_of(dataset)
    return steps, dataset


def _is_for_rows(step: Any) -> bool:
    return is_passed(step) or _is_ordered_map(step, is_stateless)


def _is_for_batches(step: Any) -> bool:
    return is_passed(step) or _is_ordered_map(step, is_row_wise)


def _is_ordered_map(step: Any, can_be_moved: Callable[[Any], bool]) -> bool:
    if not is_map(step) or tensorflow_names.gives_what_is_ready(step):
        return False
    return can_be_moved(tensorflow_names.traced_map(step))


def _makes_batches(step: Any) -> bool:
    is_one = type(step).__name__ in tensorflow_names.BATCHES
    return is_one and not tensorflow_names.gives_what_is_ready(step)
