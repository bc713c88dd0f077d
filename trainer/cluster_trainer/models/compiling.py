"""Compiles a model with the optimizer, the loss and the metrics that the settings name."""

import inspect
import logging
from typing import Any, Literal

import keras

from cluster_trainer.data.examples import DataSet
from cluster_trainer.data.run_length import RunLength
from cluster_trainer.models.build import check_classifier
from cluster_trainer.models.rate import LearningRate, learning_rate_of
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.groups import OF_COMPILING
from cluster_trainer.settings.names import references
from cluster_trainer.settings.names.spellings import shown_name

CONSTANT = "constant"
log = logging.getLogger("trainer")


def compile_as_set(
    model: keras.Model, config: TrainerConfig, data: DataSet, plan: RunLength
) -> None:
    """Compile a model by the settings, unless it is compiled; call this in the strategy's scope.

    Raises:
        ConfigurationError: a setting names an object that does not exist or does not fit; or the
            model is compiled, and a setting would have no effect.
    """
    if model.compiled:
        _refuse_settings(config)
        return
    optimizer = build_optimizer(config, plan)
    loss, metrics = loss_of(config, data), metrics_of(config, data)
    compile_with(model, optimizer, loss, metrics, jit=config.jit)
    check_loss(shown_name("model"), config.model, model, data)


def compile_with(
    model: keras.Model, optimizer: Any, loss: Any, metrics: list[Any], *, jit: bool
) -> None:
    """Compile a model; call this in the strategy's scope.

    `jit` tells whether XLA compiles the steps. Keras's own choice would depend on the machine.

    Raises:
        ConfigurationError: Keras does not accept the arguments.
    """
    try:
        if isinstance(loss, str):
            keras.losses.get(loss)  # `compile` accepts any name
        model.compile(optimizer, loss, metrics=metrics, jit_compile=jit)
    except (TypeError, ValueError) as error:
        received, accepted = model.name, "an optimizer, a loss and metrics that it can be used with"
        raise ConfigurationError([Problem("model", received, accepted, f"{error}")]) from error


def check_loss(variable: str, name: str, model: keras.Model, data: DataSet) -> None:
    """Refuse a compiled classifier whose outputs do not fit its loss; see `check_classifier`."""
    try:
        loss = keras.losses.get(model.loss)
    except (TypeError, ValueError):  # several losses, for several outputs
        return
    is_for_classes = isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
    is_for_classes = is_for_classes or loss is keras.losses.sparse_categorical_crossentropy
    if is_for_classes and data.num_classes is not None:
        to_logits = bool(getattr(loss, "from_logits", False))
        check_classifier(variable, name, model, data, to_logits=to_logits)


def _refuse_settings(config: TrainerConfig) -> None:
    given = [name for name in OF_COMPILING if name in config.model_fields_set]
    accepted = f"not given, since {config.model} compiles its model"
    problems = [Problem(shown_name(one), str(getattr(config, one)), accepted) for one in given]
    if problems:
        raise ConfigurationError(problems)


def loss_of(config: TrainerConfig, data: DataSet) -> Any:
    """Return the loss that the settings name; by default, for classes, the cross-entropy of logits.

    Raises:
        ConfigurationError: there is no such loss, or no loss is given and the labels are not
            classes.
    """
    if config.loss is not None:
        return _named("loss", config.loss, keras.losses.get, "a loss of keras.losses")
    if data.num_classes is not None:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    accepted = "a loss, since the model is not compiled and the labels are not classes"
    raise ConfigurationError([Problem(shown_name("loss"), "", accepted, "Such as mse.")])


def metrics_of(config: TrainerConfig, data: DataSet) -> list[Any]:
    """Return the metrics that the settings name; by default, for classes, the accuracy."""
    if config.metrics is None:
        return [] if data.num_classes is None else ["accuracy"]
    known = ("accuracy", "acc", "crossentropy", "ce")  # `compile` chooses among several
    return [
        one if one in known else _named("metrics", one, keras.metrics.get, "of keras.metrics")
        for one in config.metrics.split(",")
    ]


def _named(setting: str, name: str, get: Any, kind: str) -> Any:
    """Return a name that Keras knows, or the object in a user's module; a class is instantiated."""
    if references.is_reference(name):
        found = references.resolve(shown_name(setting), name)
        return found() if inspect.isclass(found) else found
    try:
        get(name)
    except (TypeError, ValueError) as error:
        accepted = f"{kind} by its name, or module:function of your own"
        raise ConfigurationError([Problem(shown_name(setting), name, accepted)]) from error
    return name


def build_optimizer(config: TrainerConfig, plan: RunLength) -> keras.optimizers.Optimizer:
    """Build the optimizer that the settings name.

    Raises:
        ConfigurationError: there is no such optimizer, the warm-up does not fit into the run, or a
            schedule is requested for a run of unknown length.
    """
    rate = learning_rate_of(config, _steps(config, plan), plan.global_batch_size)
    log.info("learning rate %s, %s", rate, config.learning_rate_schedule)
    learning_rate = _schedule(rate, config.learning_rate_schedule, plan.steps)
    optimizer = _optimizer(config.optimizer, learning_rate)
    if config.precision == "float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def _steps(config: TrainerConfig, plan: RunLength) -> int:
    """Return the steps of the run; if they are unknown, a number that does not affect the rate.

    Raises:
        ConfigurationError: they are unknown, and the rate depends on them.
    """
    if plan.steps is not None:
        return plan.steps
    if config.learning_rate_schedule == CONSTANT and config.lr_scaling == "none":
        return config.warmup_steps + 1 if isinstance(config.warmup_steps, int) else 1
    name, received = shown_name("learning_rate_schedule"), config.learning_rate_schedule
    accepted = "constant, without TRAINER_LR_SCALING, since the data do not say how long a pass is"
    advice = "Or give TRAINER_STEPS_PER_EPOCH."
    raise ConfigurationError([Problem(name, received, accepted, advice)])


def _optimizer(name: str, learning_rate: Any) -> keras.optimizers.Optimizer:
    if references.is_reference(name):
        made = references.resolve(shown_name("optimizer"), name)(learning_rate)
        if isinstance(made, keras.optimizers.Optimizer):
            return made
        accepted = "a function from a learning rate to a keras.optimizers.Optimizer"
        advice = f"It returned {type(made).__name__}."
        raise ConfigurationError([Problem(shown_name("optimizer"), name, accepted, advice)])
    if name == "momentum":
        return keras.optimizers.SGD(learning_rate, momentum=0.9)
    kinds = {kind.lower(): made for kind, made in vars(keras.optimizers).items()}
    return kinds[name](learning_rate)


def _schedule(rate: LearningRate, kind: Literal["constant", "cosine"], steps: int | None) -> Any:
    schedules = keras.optimizers.schedules
    if kind == "cosine" and steps is not None:
        return schedules.CosineDecay(
            rate.start,
            decay_steps=steps - rate.warmup_steps,
            warmup_target=rate.peak if rate.warmup_steps else None,
            warmup_steps=rate.warmup_steps,
        )
    if rate.warmup_steps:  # linear, then constant at its last value
        return schedules.PolynomialDecay(rate.start, rate.warmup_steps, rate.peak, power=1.0)
    return rate.peak
