"""The compiled training and evaluation steps, under any strategy.

The loop is ours, since Keras's own `fit` keeps no checkpoints and differs from one device in places
(docs/keras.md): many steps inside one call of TensorFlow, gradients summed over all replicas,
metrics added up on each replica and reduced only when somebody reads them.
"""

import logging
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer import gradients, random_layers
from cluster_trainer.losses import Loss, cross_entropy

log = logging.getLogger("trainer")
Batch = tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]


@dataclass(frozen=True)
class Totals:
    """Sums over examples, of all replicas: what every metric is made from."""

    loss: float
    correct: int
    examples: int

    def __add__(self, other: "Totals") -> "Totals":
        """Return the sums of both."""
        return Totals(
            self.loss + other.loss, self.correct + other.correct, self.examples + other.examples
        )

    @property
    def mean_loss(self) -> float:
        """Mean loss of an example."""
        return self.loss / max(1, self.examples)

    @property
    def accuracy(self) -> float:
        """Share of the examples that were recognised."""
        return self.correct / max(1, self.examples)


class Loop:
    """A model, its optimizer and the steps that were compiled for them.

    Build it inside `strategy.scope()`; it holds variables of its own.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: Loss = cross_entropy,
    ) -> None:
        self.strategy, self.model, self.optimizer = strategy, model, optimizer
        self._loss = loss
        optimizer.build(model.trainable_variables)
        gradients.leave_summing_out(optimizer)
        random_layers.draw_apart()
        # Each replica adds up its own [loss, correct, examples]; float64 counts exactly to 2**53.
        self._sums = tf.Variable(
            tf.zeros([3], tf.float64),
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
            trainable=False,
        )

    @property
    def loss_name(self) -> str:
        """The name of the loss."""
        return self._loss.__name__

    @tf.function
    def train(self, batches: Any, steps: tf.Tensor) -> tf.Tensor:
        """Train `steps` (int32 []) steps on the next of `batches`, a distributed iterator.

        Returns the optimizer's step, which is there only once the steps have been computed.
        """
        for _ in tf.range(steps):
            self.strategy.run(self._train_step, (next(batches),))
        return tf.identity(self.optimizer.iterations.value)

    @tf.function
    def evaluate(self, batches: Any, steps: tf.Tensor) -> tf.Tensor:
        """Evaluate the next `steps` (int32 []) of `batches`; return the optimizer's step."""
        for _ in tf.range(steps):
            self.strategy.run(self._evaluation_step, (next(batches),))
        return tf.identity(self.optimizer.iterations.value)

    def totals(self) -> Totals:
        """Return the sums since the last call, over all replicas, and start anew."""
        loss, correct, examples = self._drain().numpy()
        return Totals(float(loss), int(correct), int(examples))

    @tf.function
    def largest(self, values: tf.Tensor) -> tf.Tensor:
        """Return the largest of each value over all workers, float32 [n].

        This is how workers agree: every one of them gets the same numbers.
        """

        def gather() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            return context.all_gather(values[tf.newaxis], axis=0)

        gathered = self.strategy.run(gather)
        first = self.strategy.experimental_local_results(gathered)[0]
        return tf.reduce_max(first, axis=0)

    @tf.function
    def average_statistics(self) -> None:
        """Make BatchNorm's moving statistics the mean over all replicas, on all of them.

        Keras 3 keeps them apart on each replica, so that workers would evaluate and save
        different models.
        """
        self.strategy.run(self._average_statistics)

    def finish(self) -> None:
        """Give the weights their final values: their averages, if the optimizer keeps these."""
        if any(one.use_ema for one in gradients.all_of(self.optimizer)):
            log.info("the model gets the averages of its weights (use_ema)")
        with self.strategy.scope():
            self.optimizer.finalize_variable_values(self.model.trainable_variables)

    def _train_step(self, batch: Batch) -> None:
        inputs, labels, weights, batch_examples = batch
        with tf.GradientTape() as tape:
            logits = tf.cast(self.model(inputs, training=True), tf.float32)
            losses = self._loss(labels, logits)
            # Every replica divides by the whole batch's examples, and gradients are summed over
            # replicas: together the mean over the global batch, however it was cut.
            objective = tf.reduce_sum(losses * weights) / batch_examples
            if self.model.losses:
                added = tf.add_n([tf.cast(one, tf.float32) for one in self.model.losses])
                objective += added / self.strategy.num_replicas_in_sync
            scaled = self.optimizer.scale_loss(objective)  # float16's; else the same
        variables = self.model.trainable_variables
        sums = gradients.summed(tape.gradient(scaled, variables))
        self.optimizer.apply_gradients(zip(sums, variables, strict=True))
        self._add(losses, labels, logits, weights)

    def _evaluation_step(self, batch: Batch) -> None:
        inputs, labels, weights, _ = batch
        logits = tf.cast(self.model(inputs, training=False), tf.float32)
        self._add(self._loss(labels, logits), labels, logits, weights)

    def _add(
        self, losses: tf.Tensor, labels: tf.Tensor, logits: tf.Tensor, weights: tf.Tensor
    ) -> None:
        correct = tf.cast(tf.argmax(logits, axis=-1) == labels, tf.float32)
        sums = [tf.reduce_sum(part * weights) for part in (losses, correct)]
        self._sums.assign_add(tf.cast(tf.stack([*sums, tf.reduce_sum(weights)]), tf.float64))

    @tf.function
    def _drain(self) -> tf.Tensor:
        return self.strategy.reduce("SUM", self.strategy.run(self._take), axis=None)

    def _take(self) -> tf.Tensor:
        taken = tf.identity(self._sums)
        with tf.control_dependencies([taken]):
            self._sums.assign(tf.zeros([3], tf.float64))
        return taken

    def _average_statistics(self) -> None:
        context = tf.distribute.get_replica_context()
        variables = self.model.non_trainable_variables
        floats = [one for one in variables if tf.as_dtype(one.dtype).is_floating]
        # All of a type in one call: they travel in one message, and not in a hundred.
        for dtype in sorted({one.dtype for one in floats}):
            alike = [one for one in floats if one.dtype == dtype]
            means = context.all_reduce("MEAN", [tf.identity(one.value) for one in alike])
            for variable, mean in zip(alike, means, strict=True):
                variable.assign(mean)
