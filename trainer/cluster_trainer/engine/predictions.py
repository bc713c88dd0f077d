"""Returns predictions on every worker: one for each example, in order."""

from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.replicas import Replicas, gathered, ring_of
from cluster_trainer.engine.building import building
from cluster_trainer.engine.data.batch_shares import cut, handed_out
from cluster_trainer.engine.execution import Shared
from cluster_trainer.engine.functions import function_of
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.engine.same_values import alike
from cluster_trainer.engine.steps import as_tensor
from cluster_trainer.private import keras_names, tensorflow_names

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
        predict = self._predict
        if not model.run_eagerly:
            predict = function_of(predict)
        self._compiled = predict

    def __call__(self, batches: list[Any]) -> Any:
        """Return the predictions for divided batches, or for a batch that a user has given."""
        if ring_of(self.strategy):  # its workers create variables with different values
            is_shared = isinstance(batches[0], Shared)
            build_to_predict(self._model, batches[0].shares[0][0] if is_shared else batches[0])
            alike.make_once(self._model)
            if not is_shared:
                return self._by_itself(batches)
        outputs = [self._compiled(self._shares_of(batch)) for batch in batches]
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

    def _predict(self, batch: Any) -> Any:
        if self._replicas.total == 1:
            return self.strategy.run(self._step, args=(batch,))
        given = tensorflow_names.for_each_replica(batch)
        outputs = self.strategy.run(self._of_all, args=given)
        return tf.nest.map_structure(
            lambda value: self.strategy.experimental_local_results(value)[0], outputs
        )

    def _of_all(self, batch: Any, weight: tf.Tensor, is_whole: tf.Tensor | None = None) -> Any:
        def gather(value: tf.Tensor) -> tf.Tensor:
            if value.shape.rank is None:
                raise ValueError(
                    "A prediction's rank is unknown when `predict` is traced, so the predictions "
                    "of several replicas cannot be concatenated. Give it a shape in "
                    "`predict_step` (`tf.ensure_shape`)."
                )
            mine = value if value.shape.rank else value[tf.newaxis]
            return gathered(mine[: tf.where(weight > 0, tf.shape(mine)[0], 0)], "predict (outputs)")

        with step_context.computing(weight, is_whole):  # replicas draw different numbers
            outputs = self._step(batch)
        return tf.nest.map_structure(gather, outputs)


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
