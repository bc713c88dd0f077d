"""Returns predictions on every worker: one for each example, in order.

An output may have another number of rows than its batch: a table that is the same for all examples,
or two views of the batch, one below the other. The outputs of shares cannot be concatenated then.
Each replica computes the whole batch instead, as soon as any replica sees such an output.
"""

import logging
from contextlib import suppress
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.collectives import process_ring, replicas
from cluster_trainer.collectives.replicas import Replicas, gathered_if_all, ring_of
from cluster_trainer.engine.building import building
from cluster_trainer.engine.data.batch_shares import cut, handed_out, without_rows
from cluster_trainer.engine.data.pieces import has_rows, rows_of
from cluster_trainer.engine.execution import Shared
from cluster_trainer.engine.first_batch.batch import joined
from cluster_trainer.engine.functions import function_of
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.engine.same_values import alike
from cluster_trainer.engine.steps import as_tensor
from cluster_trainer.private import keras_names, tensorflow_names
from cluster_trainer.problems import ConfigurationError, Problem

log = logging.getLogger("trainer")
WHAT, WHAT_OF_BATCHES = "predict (outputs)", "predict (whole batches)"
# For so few rows, one worker is about as fast as all workers, which would have to gather results.
FEW_ROWS = 256


class Predictions:
    """Keras's `predict_function`."""

    alone: "Predictions | None" = None
    """The function for rows that this worker predicts by itself; None until the first such rows."""

    def __init__(self, model: keras.Model) -> None:
        self._model, self.strategy = model, model.distribute_strategy
        self._replicas = Replicas.of(self.strategy)
        self._step = keras_names.with_optionals(model, model.predict_step)
        if model.jit_compile and not model.run_eagerly:
            self._step = function_of(self._step, jit_compile=True)
        self._compiled: Any = self._predict
        self._compiled_whole: Any = self._predict_whole
        if not model.run_eagerly:
            self._compiled = function_of(self._predict)
            self._compiled_whole = function_of(self._predict_whole)
        # The generation of the ring in which every replica predicts whole batches.
        self._whole_batches_in: int | None = None
        self._varying: tuple[bool, ...] | None = None

    def __call__(self, batches: list[Any]) -> Any:
        """Return the predictions for divided batches, or for a batch that a user has given."""
        if ring_of(self.strategy):  # its workers create variables with different values
            is_shared = isinstance(batches[0], Shared)
            build_to_predict(self._model, batches[0].shares[0][0] if is_shared else batches[0])
            alike.make_once(self._model)
            if not is_shared:
                return self._by_itself(batches)
        outputs = [self._of_batch(self._shares_of(batch)) for batch in batches]
        if len(outputs) == 1:
            return outputs[0]
        return keras.tree.map_structure(lambda *parts: keras_names.concat(list(parts)), *outputs)

    def _by_itself(self, batches: list[Any]) -> Any:
        """Return the predictions of rows that may be this worker's own, such as a game's states."""
        with process_ring.left_out():
            if self.alone is None:
                self.alone = Predictions(self._model)
            return self.alone(batches)

    def _shares_of(self, batch: Any) -> Any:
        if isinstance(batch, Shared):
            if batch.source.is_distributed:  # each with its size as its weight
                return tuple(handed_out(batch.shares, self.strategy, self._replicas.local))
            return batch.shares
        batch = keras.tree.map_structure(as_tensor, batch)
        return batch if self._replicas.total == 1 else cut(batch, Replicas.of(self.strategy))

    def _of_batch(self, batch: Any) -> Any:
        """Return the predictions for a batch, or for the replicas' shares of it."""
        if self._replicas.total == 1:
            return self._compiled(batch)
        ring = ring_of(self.strategy)
        generation = (
            ring.generation if ring else 0
        )  # a newcomer does not know what others have seen
        if self._whole_batches_in != generation:
            outputs, are_of_all = self._compiled(batch)
            if are_of_all:  # the same on all workers
                return outputs
            self._whole_batches_in = generation
            self._must_be_gathered(batch)
            log.info(
                "predict: an output has another number of rows than its batch, so every replica "
                "predicts whole batches: several are no faster than one"
            )
        whole = joined([_with_examples(*share) for share in batch], self.strategy, WHAT_OF_BATCHES)
        with replicas.alone():
            return self._compiled_whole(whole)

    def _must_be_gathered(self, shares: Any) -> None:
        """Refuse shares that cannot be joined to whole batches; all workers do.

        Raises:
            ConfigurationError: a part is sparse, or has texts that TensorFlow cannot gather.
        """
        leaves = [leaf for part, *_ in shares for leaf in tf.nest.flatten(part) if leaf is not None]
        is_sparse = any(isinstance(leaf, tf.SparseTensor) for leaf in leaves)
        if is_sparse or (
            not ring_of(self.strategy) and any(leaf.dtype == tf.string for leaf in leaves)
        ):
            received = "an output with another number of rows than its batch"
            accepted = (
                f"one row for each example, if inputs are {'sparse' if is_sparse else 'texts'}"
            )
            raise ConfigurationError(
                [Problem("predict", received, accepted, "Or predict on one device.")]
            )

    def _predict(self, batch: Any) -> Any:
        if self._replicas.total == 1:
            return self.strategy.run(self._step, args=(batch,))
        given = tensorflow_names.for_each_replica(batch)
        return self._first_of(self.strategy.run(self._of_all, args=given))

    def _predict_whole(self, batch: Any) -> Any:
        def compute(batch: Any) -> Any:
            with step_context.computing(tf.ones([])):
                return self._step(batch)

        return self._first_of(self.strategy.run(compute, args=(batch,)))

    def _first_of(self, results: Any) -> Any:
        """Return the results of this process's first replica."""
        return tf.nest.map_structure(
            lambda value: self.strategy.experimental_local_results(value)[0], results
        )

    def _of_all(
        self, batch: Any, weight: tf.Tensor, is_whole: tf.Tensor | None = None
    ) -> tuple[Any, tf.Tensor]:
        """Return the outputs of all replicas, and whether these could be concatenated, bool []."""

        def rows(value: tf.Tensor) -> tf.Tensor:
            if value.shape.rank is None:
                raise ValueError(
                    "A prediction's rank is unknown when `predict` is traced, so the predictions "
                    "of several replicas cannot be concatenated. Give it a shape in "
                    "`predict_step` (`tf.ensure_shape`)."
                )
            mine = value if value.shape.rank else value[tf.newaxis]
            return mine[: tf.where(weight > 0, tf.shape(mine)[0], 0)]

        with step_context.computing(weight, is_whole):  # replicas draw different numbers
            outputs = self._step(batch)
        values = tf.nest.flatten(outputs)
        found = [*map(rows, values)]
        if not found:
            return outputs, tf.constant(True)  # noqa: FBT003
        # Only one replica returns its outputs for a whole batch, and none for a borrowed row.
        may = self._have_rows(values, batch) | (weight <= 0)
        if is_whole is not None:
            may |= is_whole
        gathered, are_of_all = gathered_if_all(found, may, WHAT)
        return tf.nest.pack_sequence_as(outputs, gathered), are_of_all

    def _have_rows(self, values: list[Any], batch: Any) -> tf.Tensor:
        """Tell whether outputs have the rows of a replica's share, bool []; see the module."""
        inputs, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        rows = [rows_of(leaf) for leaf in tf.nest.flatten(inputs) if has_rows(leaf)]
        have_rows = [
            tf.reduce_any([tf.equal(tf.cast(rows_of(value), tf.int64), one) for one in rows])
            for value in values
            if value.shape.rank
        ]
        is_constant = any(
            value.shape.rank and value.shape[0] is not None and not varies
            for value, varies in zip(values, self._varying_with_rows(values, batch), strict=True)
        )
        return tf.reduce_all([not is_constant, *have_rows])

    def _varying_with_rows(self, values: list[Any], batch: Any) -> tuple[bool, ...]:
        """Tell for each output whether its number of rows depends on the batch's.

        A table's number of rows may equal a share's by chance. It is looked for only if shapes are
        known, and a model of Keras's knows its own.
        """
        known = [bool(value.shape.rank) and value.shape[0] is not None for value in values]
        if not any(known) or tf.executing_eagerly():
            return (True,) * len(values)
        if self._varying is None:
            shapes = _shapes_of_functional(self._model) or self._shapes_without_rows(batch)
            varying = tuple(shape[0] is None if len(shape) else True for shape in shapes)
            self._varying = varying if len(varying) == len(values) else (True,) * len(values)
        return self._varying

    def _shapes_without_rows(self, batch: Any) -> list[Any]:
        """Return the outputs' shapes for an unknown number of rows; [] if that cannot be traced."""

        def trace(*leaves: Any) -> Any:
            with step_context.computing(tf.ones([])):
                return self._step(tf.nest.pack_sequence_as(batch, leaves))

        specs = [without_rows(one) for one in tf.nest.flatten(batch)]
        with suppress(Exception), tf.init_scope():
            traced = tf.function(trace, autograph=False).get_concrete_function(*specs)
            return [one.shape for one in tf.nest.flatten(traced.structured_outputs)]
        return []


def _shapes_of_functional(model: Any) -> list[Any]:
    """Return the shapes of the outputs of a model of Keras's own; [] if these are not known."""
    if not type(model).__module__.startswith("keras.") or not getattr(model, "outputs", None):
        return []
    inputs, outputs = (keras.tree.flatten(one) for one in (model.inputs, model.outputs))
    return [] if any(one.shape[0] is not None for one in inputs) else [one.shape for one in outputs]


def _with_examples(part: Any, weight: tf.Tensor, *_: Any) -> Any:
    """Return a share without the row that it has borrowed; see `weighted`."""
    if weight > 0:
        return part
    return tf.nest.map_structure(lambda leaf: leaf[:0] if has_rows(leaf) else leaf, part)


def are_few(rows: Any) -> bool:
    """Tell whether `predict` gets arrays of at most FEW_ROWS rows, which each worker predicts."""
    if rows is None or not keras_names.can_convert_arrays(rows):
        return False
    shape = next(one.shape for one in keras.tree.flatten(rows) if one is not None)
    return bool(len(shape)) and shape[0] is not None and int(shape[0]) <= FEW_ROWS


def build_to_predict(model: keras.Model, batch: Any) -> None:
    """Build a model for a batch, or its specification; the model need not be compiled.

    A model with its own `predict_step` whose layers are built stays unchanged: its `call` may take
    other inputs.
    """
    if model.built or _is_built_by_its_steps(model):
        return
    inputs, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
    given = keras.tree.map_structure(_symbol_of, inputs)
    keras_names.compute_output_spec(model, given, training=False)


def _is_built_by_its_steps(model: keras.Model) -> bool:
    has_own_step = type(model).predict_step is not keras.Model.predict_step
    return has_own_step and bool(model.layers) and not building.unbuilt_parts(model)


def _symbol_of(value: Any) -> Any:
    return building.symbol(value if isinstance(value, tf.TypeSpec) else as_tensor(value))
