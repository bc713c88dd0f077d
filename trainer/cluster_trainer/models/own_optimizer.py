"""Prepares or refuses an optimizer that a script gives to `cluster_trainer.fit`."""

from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.private import keras_names
from cluster_trainer.problems import ConfigurationError, Problem

ACCEPTED = "an optimizer of keras.optimizers, or its name"
IN_SCOPE = "an optimizer that was made in the same strategy.scope() as the model"
COUNTS_REPLICAS = "Made outside, it would count a step once for each replica."


def read_optimizer(given: Any, model: keras.Model) -> keras.optimizers.Optimizer:
    """Return an optimizer that was created in the scope of a model's strategy.

    Like `compile`, this adds a loss scale if layers compute in float16. Call it in the strategy's
    scope.

    Raises:
        ConfigurationError: `given` is not an optimizer, or belongs to another strategy.
    """
    try:
        optimizer = keras.optimizers.get(given)
    except ValueError as error:
        raise ConfigurationError([Problem("optimizer", str(given), ACCEPTED)]) from error
    _refuse_other_scope(optimizer, model)
    optimizer.build(model.trainable_variables)
    _refuse_other_scope(optimizer, model)  # again: `build` may have created inner optimizers
    is_scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if is_scaled or optimizer.loss_scale_factor or "float16" not in compute_dtypes(model):
        return optimizer
    return keras.optimizers.LossScaleOptimizer(optimizer)


def compute_dtypes(model: keras.Model) -> set[str]:
    """Return the number formats in which the model's layers compute."""
    # Keras has no public access to nested layers.
    return {layer.compute_dtype for layer in keras_names.layers_within(model)}


def _refuse_other_scope(optimizer: keras.optimizers.Optimizer, model: keras.Model) -> None:
    """Refuse an optimizer created for another strategy, or one that contains such an optimizer.

    Raises:
        ConfigurationError: it is such an optimizer.
    """
    wanted = _strategy_of(model.weights[0])
    for one in (optimizer, *_inner(optimizer)):
        # The property `iterations` may be a number that is computed from it.
        if _strategy_of(keras_names.step_counter(one)) is not wanted:
            raise ConfigurationError([Problem("optimizer", one.name, IN_SCOPE, COUNTS_REPLICAS)])


def _inner(optimizer: Any) -> list[Any]:
    """Return the optimizers that an optimizer contains."""
    held = [getattr(optimizer, "inner_optimizer", None), *getattr(optimizer, "optimizers", [])]
    return [one for one in held if one is not None]


def _strategy_of(variable: keras.Variable) -> tf.distribute.Strategy | None:
    """Return the strategy in whose scope a variable was created; None: there was none."""
    return getattr(variable.value, "distribute_strategy", None)
