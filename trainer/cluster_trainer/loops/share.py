"""`share`: gives each worker its share of each batch, for a script's own training loop.

    for x, y in share(dataset, model):
        train_step(x, y)

The body of such a loop is a step of several replicas, like a `train_step` within `fit`: optimizers
apply the gradients of the whole batch, and losses, masks and random layers are those of the batch
(engine/replicas/). One variable holds the weight of the share for all loops of a process, because a
function that was traced in one loop may be called in the next.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.collectives.workers import Workers, workers_of
from cluster_trainer.engine import compared_facts
from cluster_trainer.engine.data import pipelines
from cluster_trainer.engine.data.batch_shares import count_in, cut, rows_known
from cluster_trainer.engine.data.pieces import TOGETHER, has_rows
from cluster_trainer.engine.data.same_data import differing_batches, refuse_others, warn
from cluster_trainer.engine.data.sharding.rebuilt import OwnRows
from cluster_trainer.engine.data.sources.choice import source_of
from cluster_trainer.engine.replicas import statistics, step_context
from cluster_trainer.engine.same_values import alike
from cluster_trainer.engine.steps import as_tensor
from cluster_trainer.fits.process_state import present
from cluster_trainer.fits.script.calls import call
from cluster_trainer.loops.ring import ring_of_loop
from cluster_trainer.loops.weight import Part, WeightOfShare, weight_of_share
from cluster_trainer.private import keras_names
from cluster_trainer.problems import ConfigurationError, Problem, told
from cluster_trainer.settings.task import as_started, names_of

WHAT = "share"
OF_OPTIMIZER = "weights of optimizer"
PLAIN = (bool, int, float, complex, str, bytes, np.generic)
CAUSES = (
    "Each worker has trained for itself: by a concrete function that was made before the loop, by "
    "weights or a learning rate assigned from a share, by weights or an optimizer's state that "
    "only some workers have restored between two loops, or by an optimizer that was applied "
    "outside of the loop's body. Build and trace within the loop, change weights by optimizers "
    "alone, and restore on all workers."
)
log = logging.getLogger("trainer")


def share(batches: Iterable[Any], *models: keras.Model) -> Iterable[Any]:
    """Return this worker's share of each batch, for the script's own training loop.

    Iterate over it in Python, once for each epoch. The body of the loop may call `tf.function`s.
    Within the body, an optimizer's `apply` and `apply_gradients` sum gradients over all workers. So
    all weights stay alike, which is checked at the end of each pass. On one worker the batches are
    returned unchanged.

    No checkpoints are saved: a script that is restarted begins the loop anew.

    Args:
        batches: a tf.data.Dataset of batches, or any other iterable of batches, the same on all
            workers. A batch has tensors or arrays [n, …] in any structure. An element without such
            a dimension, such as the number of an episode, is returned whole on every worker, and
            all workers have the same weight.
        models: the models that the loop uses. They begin with worker 0's values, and
            BatchNormalization's statistics are averaged over all workers when a pass ends. Of
            models that are not given, only the weights that an optimizer trains begin with worker
            0's values. So does the optimizer's state when it is first applied in a loop.

    Raises:
        ConfigurationError: the workers' data differ, their weights differ at the end of a pass, a
            batch has a list of as many values as it has rows, or no ring sums in each step.
        ValueError: it is iterated over within `tf.function`, or within a strategy's scope.
    """
    return _Shared(batches, models)


class _Shared:
    """The result of `share`; each iteration is a pass through the batches."""

    def __init__(self, batches: Iterable[Any], models: tuple[keras.Model, ...]) -> None:
        self._batches, self._models = batches, models
        self._has_compared = False

    def __len__(self) -> int:
        batches: Any = self._batches
        return len(batches)

    def __iter__(self) -> Iterator[Any]:
        _refuse_here()
        if ring_of_loop(WHAT) is None:
            return iter(self._batches)
        strategy = tf.distribute.get_strategy()
        # As for a call of Keras's, the script waits for the others at its end.
        call(present(), lambda: None, strategy, as_started(os.environ))
        return self._shares(workers_of(strategy), Replicas.of(strategy))

    def _shares(self, workers: Workers, replicas: Replicas) -> Iterator[Any]:
        """Yield the shares of a pass; the body of the loop runs during the `yield`."""
        _say()
        weight = weight_of_share()
        self._make_alike()
        self._average(workers, weight)  # the pass before may have been left early
        self._compare(workers, replicas, weight)
        with weight.passing() as passed:
            for given, part, whole, of_batch in self._parts(workers, replicas, weight):
                self._make_alike()
                passed.set(of_batch)
                self._note_changes(of_batch, replicas)
                with step_context.in_loop(_step_of(part, whole, weight)):
                    yield keras.tree.map_structure(_as_given, given, part)
            self._make_alike()
        self._average(workers, weight)

    def _parts(
        self, workers: Workers, replicas: Replicas, weight: WeightOfShare
    ) -> Iterator[tuple[Any, Any, Any, Part]]:
        """Yield each batch as it was given, and this worker's share of it; see `_cut`."""
        is_dataset = isinstance(self._batches, tf.data.Dataset)
        if is_dataset and (own := weight.compared[self._batches]):
            yield from _parts_of_own(own)
            return
        components = pipelines.components(self._batches) if is_dataset else TOGETHER
        for given in self._batches:
            batch = keras.tree.map_structure(as_tensor, given)
            self._compare_first(workers, batch)
            _refuse_lists(given, rows_known(batch))
            yield given, *_cut(batch, replicas, components)

    def _compare(self, workers: Workers, replicas: Replicas, weight: WeightOfShare) -> None:
        """Compare a dataset's seeds and length between workers, once; all workers call this.

        Raises:
            ConfigurationError: they differ.
        """
        if not isinstance(self._batches, tf.data.Dataset):
            return
        self._has_compared = True
        if self._batches not in weight.compared:
            adapter = keras_names.TFDatasetAdapter(self._batches)
            source = source_of(adapter, replicas, tf.distribute.get_strategy(), 0)
            weight.compared[self._batches] = source.own_rows
            length = {"batches": str(int(self._batches.cardinality()))}
            if others := refuse_others(workers, source, length, WHAT):
                warn(WHAT, others)

    def _compare_first(self, workers: Workers, batch: Any) -> None:
        """Compare the first batch between workers, unless a tf.data.Dataset was compared before."""
        if self._has_compared:
            return
        self._has_compared = True
        if others := differing_batches(workers, batch, f"{WHAT} (the first batch)"):
            warn(WHAT, others)

    def _make_alike(self) -> None:
        """Give models worker 0's values once they are built."""
        for model in self._models:
            if model.built:
                alike.make_for_loop(model)

    def _note_changes(self, part: Part, replicas: Replicas) -> None:
        """Note that the body of the loop changes statistics, which are averaged before a read.

        If shares differ in size, they are also averaged before the body, and before the next one.
        """
        is_uneven = part.mine * replicas.total != part.of_all
        for model in self._models:
            if is_uneven or statistics.are_weighted(model):
                statistics.average(model, tf.distribute.get_strategy())
            statistics.note_changes(model, part.mine / part.of_all if is_uneven else None)

    def _average(self, workers: Workers, weight: WeightOfShare) -> None:
        """Average the models' statistics, and refuse weights that differ; all workers call this.

        Raises:
            ConfigurationError: the weights differ; on all workers.
        """
        built = [model for model in self._models if model.built]
        for model in built:
            statistics.average(model, tf.distribute.get_strategy())
        found = {model.name: alike.digest_of(model.weights) for model in built}
        # The garbage collector may remove an unused optimizer sooner on one worker than on another.
        trained = {f"{OF_OPTIMIZER} {number}": one for number, one in weight.trained.values()}
        found |= {name: alike.digest_of(one) for name, one in trained.items()}
        everyone = compared_facts.of_all(workers, found, f"{WHAT} (weights)")
        if unlike := {
            name: values
            for name, values in compared_facts.differing(everyone).items()
            if all(values)
        }:
            names = names_of(workers.members)
            raise ConfigurationError(
                [
                    Problem(
                        name,
                        values[workers.rank],
                        "the same on all workers",
                        f"{told(names, values)}. {CAUSES}",
                    )
                    for name, values in unlike.items()
                ]
            )


def _parts_of_own(own: OwnRows) -> Iterator[tuple[Any, Any, Any, Part]]:
    """Yield the shares of a pipeline that prepares only this worker's rows; see `_parts`."""
    for examples, *parts in own.rows:
        ((part, _, *_),) = own.shares(examples, *parts)
        count = int(examples[0])
        ((start, stop),) = own.replicas.bounds(count)
        yield part, part, None, Part(stop - start, count)


def _cut(batch: Any, replicas: Replicas, components: Any) -> tuple[Any, Any, Part]:
    """Return this worker's share of a batch, whether that is the whole batch, and its size.

    The second value, bool [], is None if the share cannot be the whole batch.
    """
    equal = Part(1, replicas.total)
    if not any(map(has_rows, tf.nest.flatten(batch))):
        return batch, None, equal
    ((part, weight, *whole),) = cut(batch, replicas, components)
    examples = count_in(batch)
    mine = Part(round(float(weight) * examples), examples) if examples else equal
    return part, whole[0] if whole else None, mine


def _as_given(given: Any, part: Any) -> Any:
    """Return a part of a share in the type that the script has given, such as a NumPy array."""
    if isinstance(given, tf.Tensor) or not isinstance(part, tf.Tensor):
        return part
    if not part.shape.rank and not isinstance(given, np.ndarray):
        return given  # a number, the same for all
    return _as_array(given, part) if isinstance(given, (np.ndarray, np.generic)) else part


def _as_array(given: Any, part: tf.Tensor) -> Any:
    """Return a share of an array as an array; TensorFlow has bytes for its texts."""
    own = part.numpy()
    texts = np.ravel(given)
    if part.dtype != tf.string or not texts.size or not isinstance(texts[0], str):
        return own
    decoded = np.array([one.decode() for one in np.ravel(own)], object).reshape(np.shape(own))
    return decoded.astype(given.dtype)


def _refuse_lists(given: Any, rows: set[int | None]) -> None:
    """Refuse lists of as many values as a batch has rows, because a list is not cut.

    Raises:
        ConfigurationError: there is one.
    """
    for one in _lists_in(given):
        if len(one) > 1 and len(one) in rows:
            received = f"a list of {len(one)} values beside {len(one)} rows"
            advice = "`share` cuts arrays and tensors, and returns a list whole on every worker."
            accepted = "an array, np.asarray(…), for values of examples; a tuple for other values"
            raise ConfigurationError([Problem("a batch of `share`", received, accepted, advice)])


def _lists_in(given: Any) -> Iterator[list[Any]]:
    """Yield the lists of plain values within a batch."""
    if isinstance(given, list) and all(isinstance(one, PLAIN) for one in given):
        yield given
    elif isinstance(given, (list, tuple)):
        for part in given:
            yield from _lists_in(part)
    elif isinstance(given, Mapping):
        yield from _lists_in([*given.values()])


def _step_of(part: Any, whole: Any, weight: WeightOfShare) -> step_context.Share:
    def make_alike(optimizer: Any, variables: Sequence[Any]) -> None:
        if new := weight.note(optimizer, variables):
            with tf.init_scope():  # the step may be traced here
                alike.make_variables(new)  # apart, so that a refusal counts weights alone
                alike.make_variables(optimizer.variables)

    return step_context.Share(
        weight.variable,
        given_is_whole=False if whole is None else whole,
        rows=frozenset(rows_known(part)),
        prepare=make_alike,
    )


def _refuse_here() -> None:
    if not tf.executing_eagerly():
        raise ValueError(
            "`share` was iterated over within `tf.function`. Iterate over it in Python, and call a "
            "`tf.function` with each batch."
        )
    if tf.distribute.has_strategy():
        raise ValueError(
            "`share` was iterated over within a strategy's scope. A strategy shares batches out "
            "itself: use its `experimental_distribute_dataset`, or leave the strategy out."
        )


@cache
def _say() -> None:
    log.info("each worker trains on its share of each batch (cluster_trainer.share)")
