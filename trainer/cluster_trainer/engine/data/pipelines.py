"""Finds facts about a tf.data pipeline without reading it: reading would use up a shuffle order."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from typing import Any
from weakref import WeakSet

import numpy as np
import tensorflow as tf

from cluster_trainer.engine import running
from cluster_trainer.engine.data import captured
from cluster_trainer.engine.data.pieces import TOGETHER, Component
from cluster_trainer.engine.functions import nodes_within
from cluster_trainer.private import tensorflow_names

log = logging.getLogger("trainer")
# The number of rows in a digest, with which workers compare their data.
DIGESTED = 16
# Operations in the function of an `interleave` or a `flat_map` that show that it may shuffle.
CHANGING = ("ShuffleDataset", "RandomDataset", "ShuffleAndRepeat", "AnonymousSeedGenerator")
TOLD_SECONDS = 10.0
SHUFFLES, DRAWS = "the seeds of shuffles", "the seeds of `tf.data.Dataset.random`"
ROWS = "SHA-256 of some rows that tf.data.Datasets were made of"
NO_SEED = (
    "Each worker shuffles a tf.data.Dataset for itself, without a seed: some examples are used "
    "twice and others never. Give `shuffle` a seed, or call `keras.utils.set_random_seed` first, "
    "with the same number on all workers."
)
NO_ORDER = (
    "A tf.data.Dataset has a different order on each worker (`deterministic=False`): some "
    "examples are used twice and others never. Give `map` and `interleave` `deterministic=True`; "
    "for tensorflow_datasets, whose `shuffle_files` does so, a `tfds.ReadConfig(shuffle_seed=…)`."
)


# Shuffles of fits that had finished before this start of the program.
_of_ended_fits: WeakSet[Any] = WeakSet()


def steps_of(dataset: Any, *, in_caches: bool = True) -> Iterator[Any]:
    """Yield a dataset and all datasets that it is made from; `in_caches`: also those of caches."""
    yield dataset
    if in_caches or type(dataset).__name__ not in tensorflow_names.CACHES:
        for one in tensorflow_names.inputs_of(dataset):
            yield from steps_of(one, in_caches=in_caches)


def facts(dataset: tf.data.Dataset) -> dict[str, str]:
    """Return the facts that must be the same on all workers: name -> value.

    Seeds within the functions of an `interleave` or a `flat_map` are not examined.
    """
    found: dict[str, list[str]] = {}
    for one in steps_of(dataset):
        if seeds := tensorflow_names.seeds_of(one):
            name = DRAWS if type(one).__name__ == tensorflow_names.RANDOM else SHUFFLES
            found.setdefault(name, []).append("/".join(map(str, seeds)))
    seeds_of_all = {name: ", ".join(seeds) for name, seeds in found.items()}
    return seeds_of_all | of_rows(dataset) | captured.of_texts(_graphs(dataset))


def of_rows(dataset: tf.data.Dataset) -> dict[str, str]:
    """Return {ROWS: a digest of some rows that a dataset was made from}; {} without rows."""
    found = [rows for one in steps_of(dataset) for rows in _rows(one)]
    digest = sha256()
    for rows in found:
        digest.update(content(_some_of(rows)))
    return {ROWS: digest.hexdigest()[:12]} if found else {}


def of_numbers(dataset: tf.data.Dataset) -> dict[str, str]:
    """Return the numbers that a dataset's functions take from the script; see captured.py."""
    return captured.of_numbers(_graphs(dataset))


def _graphs(dataset: tf.data.Dataset) -> list[Any]:
    return [graph for one in steps_of(dataset) for graph in tensorflow_names.graphs_of(one)]


def warnings(dataset: tf.data.Dataset) -> list[str]:
    """Return warnings about a dataset's order if it may differ between workers."""
    found = []
    if any(_has_no_seed(one) for one in steps_of(dataset)):
        found.append(NO_SEED)
    # A step's own setting takes precedence over the options for all.
    if dataset.options().deterministic is False or any(
        tensorflow_names.gives_what_is_ready(one) for one in steps_of(dataset)
    ):
        found.append(NO_ORDER)
    return found


def components(dataset: tf.data.Dataset) -> Sequence[Component]:
    """Return the parts of a dataset's batches that were batched together; see pieces.py.

    Parts that a zip joins were batched separately, unless a later step may have changed them.
    """
    found = [*_components(dataset)]
    is_zip = len(found) > 1 and None not in found
    return [one for one in found if one] if is_zip else TOGETHER


def _components(dataset: tf.data.Dataset) -> Iterator[Component | None]:
    """Yield the component of each zipped dataset; None: the dataset's batching is unknown."""
    while type(dataset).__name__ in tensorflow_names.AS_THEY_ARE:
        (dataset,) = tensorflow_names.inputs_of(dataset)
    if type(dataset).__name__ == tensorflow_names.ZIP:
        for one in tensorflow_names.inputs_of(dataset):
            yield from _components(one)
        return
    parts = len(tf.nest.flatten(dataset.element_spec))
    if not any(shape.rank != 0 for shape in shapes(dataset)):
        yield Component(parts)
        return
    batching = tensorflow_names.BATCHING
    ends = (*batching, tensorflow_names.ZIP)
    last = next((one for one in steps_of(dataset) if type(one).__name__ in ends), None)
    if type(last).__name__ not in batching:
        yield None
        return
    size = tensorflow_names.batch_size_of(last)
    known = None if size is None else tf.get_static_value(size)
    yield Component(parts, None if known is None else int(known))


def shapes(dataset: tf.data.Dataset) -> list[tf.TensorShape]:
    """Return the shapes of the parts of a dataset's elements; parts that are None are omitted."""
    specs = tf.nest.flatten(dataset.element_spec)
    return [spec.shape for spec in specs if hasattr(spec, "shape")]  # None has no shape


def begin(dataset: tf.data.Dataset, times: int) -> None:
    """Use up as many orders of a `shuffle` as `times` iterators use up.

    An iterator uses up one order when it begins. If an iterator uses several orders, or caches one,
    it is read to its end. If the data have only one order, nothing is done.
    """
    if times < 1 or not any(map(_may_reshuffle, steps_of(dataset))):
        return
    if not _needs_reading(dataset):
        repeat(times, "begun", lambda: next(iter(dataset), None))
        return
    passes = times if any(map(_reshuffles, steps_of(dataset, in_caches=False))) else 1
    repeat(passes, "read", lambda: deque(dataset, maxlen=0))


def repeat(times: int, what: str, do: Callable[[], object]) -> None:
    """Repeat an action, each time within the time limit for the start of a pass; log progress."""
    log.info(
        "shuffled data are %s %s, as at an earlier start: the order changes each time",
        *(what, "once" if times == 1 else f"{times} times"),
    )
    told = time.monotonic()
    for number in range(times):
        with running.current().watched.limit(repeat, is_first=True):
            do()
        if time.monotonic() - told > TOLD_SECONDS:
            told = time.monotonic()
            log.info("shuffled data: %s %d of %d times", what, number + 1, times)


def note_ended(dataset: tf.data.Dataset) -> None:
    """Note that a fit on a dataset had finished at an earlier start."""
    _of_ended_fits.update(filter(_reshuffles, steps_of(dataset)))


def warn_of_ended(dataset: tf.data.Dataset) -> None:
    """Warn if a dataset shares a shuffle with a fit that had finished; see `note_ended`.

    Each iterator of a `Dataset.shuffle` has the next order of its seed. This process has begun none
    of the finished fit's iterators, so the count of orders starts too low.
    """
    if any(one in _of_ended_fits for one in steps_of(dataset)):
        warn_of_shared_shuffle()


@cache
def warn_of_shared_shuffle() -> None:
    """Warn once that this fit gets the orders of a finished fit."""
    log.warning(
        "This fit shares a `shuffle` with a fit that had finished before the restart. It gets the "
        "orders of that fit, and not those that it would have had without the restart. Call "
        "`shuffle` once for each fit to train on the same orders after a restart."
    )


def content(leaf: Any) -> bytes:
    """Return a tensor's values as bytes, to be digested."""
    is_dense = isinstance(leaf, tf.Tensor) and leaf.dtype != tf.string
    return leaf.numpy().tobytes() if is_dense else str(leaf.numpy().tolist()).encode()


def _has_no_seed(dataset: Any) -> bool:
    return tensorflow_names.seeds_of(dataset) == (0, 0)


def _reshuffles(dataset: Any) -> bool:
    """Tell whether each iterator has a different order, determined by a seed."""
    return tensorflow_names.reshuffles(dataset) and not _has_no_seed(dataset)


def _may_reshuffle(dataset: Any) -> bool:
    """Tell whether each iterator may have a different order, or draw different numbers."""
    if _reshuffles(dataset) or type(dataset).__name__ in tensorflow_names.OPAQUE:
        return True
    if tensorflow_names.draws_anew(dataset):
        return True
    return any(
        operation.type.startswith(CHANGING)
        for graph in tensorflow_names.graphs_of(dataset)
        for operation in graph.get_operations()
    )


def calls_python(dataset: tf.data.Dataset) -> bool:
    """Tell whether reading a pipeline calls Python, as far as its graphs show."""
    return any(
        type(one).__name__ in tensorflow_names.OPAQUE
        or any(
            "PyFunc" in node.op
            for graph in tensorflow_names.graphs_of(one)
            for node in nodes_within(graph)
        )
        for one in steps_of(dataset)
    )


def _needs_reading(dataset: tf.data.Dataset) -> bool:
    """Tell whether a dataset is finite, and an iterator uses several orders or caches one.

    A dataset that may be endless cannot be read to its end.
    """
    return not _may_be_endless(dataset) and keeps_or_repeats_orders(dataset)


def keeps_or_repeats_orders(dataset: tf.data.Dataset) -> bool:
    """Tell whether a dataset has a part that reads shuffled data again, or caches them.

    If so, the number of orders that an iterator uses up depends on how far it is read.
    """
    again = [
        one
        for one in steps_of(dataset)
        if type(one).__name__ in tensorflow_names.OF_SEVERAL_ITERATORS
    ]
    return any(_reshuffles(below) for one in again for below in steps_of(one))


def _may_be_endless(dataset: tf.data.Dataset) -> bool:
    """Tell whether a dataset is endless, or has an unknown length and an endless source."""
    length = int(dataset.cardinality())
    if length != tf.data.UNKNOWN_CARDINALITY:
        return bool(length == tf.data.INFINITE_CARDINALITY)
    name = type(dataset).__name__
    if name == tensorflow_names.TAKE and tensorflow_names.count_of(dataset) >= 0:
        return False
    some = all if name == tensorflow_names.ZIP else any  # a zip ends with its shortest
    # The first input of `sample_from_datasets` only chooses among the others.
    first = int(name == tensorflow_names.DIRECTED_INTERLEAVE)
    return some(map(_may_be_endless, tensorflow_names.inputs_of(dataset)[first:]))


def _rows(dataset: Any) -> list[tf.Tensor]:
    """Return the tensors that a dataset was made from, for example by `from_tensor_slices`."""
    are_variants = (tf.variant, tf.resource)  # ragged rows, for example
    return [
        one
        for one in tensorflow_names.tensors_of(dataset)
        if one.shape.rank and one.shape[0] and one.dtype not in are_variants
    ]


def _some_of(rows: tf.Tensor) -> tf.Tensor:
    """Return at most DIGESTED rows; paths without their folders, which may differ by worker."""
    places = np.unique(np.linspace(0, len(rows) - 1, DIGESTED, dtype=np.int64))
    some = tf.gather(rows, places)
    if rows.dtype != tf.string:
        return some
    return tf.strings.regex_replace(some, r"(?s)^.*/", "")
