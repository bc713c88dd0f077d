"""Predictions: each example's once, in order, on every worker."""

from typing import Any

import keras
import tensorflow as tf
from keras.src import backend
from keras.src.backend.tensorflow.trainer import concat
from tensorflow.python.distribute import distribute_utils

from cluster_trainer.collectives.replicas import Replicas, gathered, ring_of
from cluster_trainer.engine import building
from cluster_trainer.engine.data.cut import cut, handed_out
from cluster_trainer.engine.epoch_iterator import Shared
from cluster_trainer.engine.replicas import alike, step_context
from cluster_trainer.engine.steps import as_tensor


def _symbolic(value: Any) -> keras.KerasTensor:
    return keras.KerasTensor(value.shape, keras.backend.standardize_dtype(value.dtype))


class Predictions:
    """What Keras calls `predict_function`.

    Args:
        model: whose predictions are asked for.
    """

    def __init__(self, model: keras.Model) -> None:
        self._model, self._strategy = model, model.distribute_strategy
        self._replicas = Replicas.of(self._strategy)
        self._step = model._autoconvert_optionals(model.predict_step)  # noqa: SLF001
        if model.jit_compile and not model.run_eagerly:
            self._step = tf.function(self._step, jit_compile=True, reduce_retracing=True)
        predict = self._predict
        if not model.run_eagerly:
            predict = tf.function(predict, reduce_retracing=True, autograph=False)
        self._compiled = predict

    def __call__(self, batches: list[Any]) -> Any:
        """Return the predictions for some batches, one after the other.

        Args:
            batches: as the engine has shared them out, or one that every worker has.
        """
        if ring_of(self._strategy):  # else each worker would draw its own variables
            if not self._model.built and not self._is_built_by_its_steps():
                self._build(batches[0])
            alike.make_once(self._model)
        outputs = [self._compiled(self._shares_of(batch)) for batch in batches]
        if len(outputs) == 1:
            return outputs[0]
        return keras.tree.map_structure(lambda *parts: concat(list(parts)), *outputs)

    def _is_built_by_its_steps(self) -> bool:
        """Tell whether steps of a user's own have built its parts, and it may take other inputs."""
        own = type(self._model).predict_step is not keras.Model.predict_step
        return own and bool(self._model.layers) and not building.unbuilt_parts(self._model)

    def _build(self, batch: Any) -> None:
        """Build a model for inputs like these; it need not be compiled."""
        part = batch.shares[0][0] if isinstance(batch, Shared) else batch
        inputs, _, _ = keras.utils.unpack_x_y_sample_weight(part)
        given = keras.tree.map_structure(lambda one: _symbolic(as_tensor(one)), inputs)
        backend.compute_output_spec(self._model, given, training=False)

    def _shares_of(self, batch: Any) -> Any:
        if isinstance(batch, Shared):
            if batch.source.is_distributed:  # each with its size for its weight
                return tuple(handed_out(batch.shares, self._strategy, self._replicas.local))
            return batch.shares
        batch = keras.tree.map_structure(as_tensor, batch)
        return batch if self._replicas.total == 1 else cut(batch, Replicas.of(self._strategy))

    def _predict(self, batch: Any) -> Any:
        if self._replicas.total == 1:
            return self._strategy.run(self._step, args=(batch,))
        given = distribute_utils.regroup(batch) if len(batch) > 1 else batch[0]
        outputs = self._strategy.run(self._of_all, args=given)
        return tf.nest.map_structure(
            lambda value: self._strategy.experimental_local_results(value)[0], outputs
        )

    def _of_all(self, batch: Any, weight: tf.Tensor) -> Any:
        def gather(value: tf.Tensor) -> tf.Tensor:
            if value.shape.rank is None:
                raise ValueError(
                    "A prediction's rank is unknown when `predict` is traced, so that several "
                    "replicas' cannot be put together: `predict_step` has to give it a shape "
                    "(`tf.ensure_shape`)."
                )
            mine = value if value.shape.rank else value[tf.newaxis]
            return gathered(mine[: tf.where(weight > 0, tf.shape(mine)[0], 0)], "predict (outputs)")

        with step_context.computing(weight):  # what is drawn at random is drawn apart
            outputs = self._step(batch)
        return tf.nest.map_structure(gather, outputs)
