"""An optimizer that a script gives to `fit`: made ready, or refused."""

from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.gradients import all_of
from cluster_trainer.problems import ConfigurationError, Problem

ACCEPTED = "an optimizer of keras.optimizers, or its name"
IN_SCOPE = "an optimizer that was made in the same strategy.scope() as the model"
COUNTS_REPLICAS = "Made outside, it would count a step once for each replica."


def read_optimizer(
    given: Any, strategy: tf.distribute.Strategy, model: keras.Model
) -> keras.optimizers.Optimizer:
    """Return an optimizer that does on all replicas together what it would do on one device.

    As `compile` does, this gives an optimizer a loss scale where layers compute in float16. Call
    it in the strategy's scope.

    Raises:
        ConfigurationError: it is none, belongs to another strategy, or was asked for what cannot
            be done here.
    """
    try:
        optimizer = keras.optimizers.get(given)
    except ValueError as error:
        raise ConfigurationError([Problem("optimizer", str(given), ACCEPTED)]) from error
    _check(optimizer, strategy, model)
    optimizer.build(model.trainable_variables)
    _check(optimizer, strategy, model)  # again: one that holds several may have made them just now
    is_scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if is_scaled or optimizer.loss_scale_factor or "float16" not in compute_dtypes(model):
        return optimizer
    return keras.optimizers.LossScaleOptimizer(optimizer)


def _check(
    optimizer: keras.optimizers.Optimizer, strategy: tf.distribute.Strategy, model: keras.Model
) -> None:
    problems = [
        problem for one in all_of(optimizer) for problem in _problems_of(one, strategy)
    ] or _problems_of_scope(optimizer, model)
    if problems:
        raise ConfigurationError(problems)


def compute_dtypes(model: keras.Model) -> set[str]:
    """Return what the model's layers compute in."""
    # Keras has no public way into nested layers.
    return {layer.compute_dtype for layer in model._flatten_layers()}  # noqa: SLF001


def _problems_of(
    optimizer: keras.optimizers.Optimizer, strategy: tf.distribute.Strategy
) -> list[Problem]:
    """Return what one optimizer asks for and cannot get."""
    problems = []
    if optimizer.gradient_accumulation_steps:
        received = f"gradient_accumulation_steps={optimizer.gradient_accumulation_steps}"
        advice = "A larger global_batch_size is the same training, if it fits into memory."
        problems.append(Problem("optimizer", received, "no gradient_accumulation_steps", advice))
    if optimizer.ema_overwrite_frequency and strategy.num_replicas_in_sync > 1:
        received = f"ema_overwrite_frequency={optimizer.ema_overwrite_frequency}"
        accepted = f"no ema_overwrite_frequency on {strategy.num_replicas_in_sync} replicas"
        advice = "With use_ema alone the model gets the averages at the end."
        problems.append(Problem("optimizer", received, accepted, advice))
    return problems


def _problems_of_scope(optimizer: keras.optimizers.Optimizer, model: keras.Model) -> list[Problem]:
    """Say so if an optimizer, or one that it holds, was made for another strategy."""
    wanted = _strategy_of(model.weights[0])
    for one in (optimizer, *all_of(optimizer)):
        if _strategy_of(one.iterations) is not wanted:
            return [Problem("optimizer", one.name, IN_SCOPE, COUNTS_REPLICAS)]
    return []


def _strategy_of(variable: keras.Variable) -> tf.distribute.Strategy | None:
    """Return the strategy in whose scope a variable was made, None for one that was in none."""
    return getattr(variable.value, "distribute_strategy", None)
