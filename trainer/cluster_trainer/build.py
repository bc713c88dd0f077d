"""Models and optimizers as the settings name them."""

import logging
from typing import Any, Literal

import keras

from cluster_trainer import models, references
from cluster_trainer.config import TrainerConfig, shown_name
from cluster_trainer.data.examples import DataSet
from cluster_trainer.losses import name_of
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.rate import LearningRate, learning_rate_of

MODEL_VARIABLE = shown_name("model")
log = logging.getLogger("trainer")
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}
TRAINING_METHODS = (
    "train_step",
    "test_step",
    "compute_loss",
    "compute_metrics",
    "make_train_function",
    "make_test_function",
    "fit",
    "evaluate",
)
PICTURE = 3  # the dimensions of one: height, width, channels


def build_model(config: TrainerConfig, data: DataSet) -> keras.Model:
    """Build the model that the settings name, for the data's shapes.

    The precision is set for all of Keras, so that users' own layers follow it, too.

    Raises:
        ConfigurationError: it is not a model that returns one logit for each class, not one for
            such inputs, or has no BatchNorm to synchronise.
    """
    set_precision(config)
    model = _build_named(config.model, data)
    if config.sync_batch_norm:
        synchronise_batch_norm(config.model, model)
    return model


def set_precision(config: TrainerConfig) -> None:
    """Set what layers that are made from now on compute in, users' own too."""
    keras.config.set_dtype_policy(POLICIES[config.precision])


def _build_named(name: str, data: DataSet) -> keras.Model:
    _refuse_small_pictures(name, data)
    build = references.resolve(MODEL_VARIABLE, models.reference_of(name))
    try:
        model = build(data.train.input_shape, data.num_classes)
    except (TypeError, ValueError) as error:
        accepted = f"a function that builds a model for inputs {list(data.train.input_shape)}"
        raise _refused_model(MODEL_VARIABLE, name, accepted, str(error)) from error
    check_model(MODEL_VARIABLE, name, model, data)
    return model


def check_model(
    variable: str, name: str, model: Any, data: DataSet, *, to_logits: bool | None = True
) -> None:
    """Refuse what is no classifier of the data.

    Args:
        variable: what the message calls it.
        name: its own name there.
        model: what has been built.
        data: what it is to learn.
        to_logits: whether its loss takes logits; False: probabilities; None: it does not say.

    Raises:
        ConfigurationError: it is not a model that returns for each class what its loss takes.
    """
    what = "probabilities" if to_logits is False else "logits, without a softmax"
    accepted = f"a keras.Model that returns {data.num_classes} {what}"
    if not isinstance(model, keras.Model):
        raise _refused_model(variable, name, accepted, f"It returned {type(model).__name__}.")
    if tuple(model.output_shape) != (None, data.num_classes):
        raise _refused_model(variable, name, accepted, f"It returns {model.output_shape}.")
    _refuse_own_training(variable, name, model)
    activation = _last_activation(model)
    if to_logits and activation is keras.activations.softmax:
        advice = "Its last layer ends in a softmax; leave it out."
        raise _refused_model(variable, name, accepted, advice)
    if to_logits is False and activation is keras.activations.linear:
        advice = "Its last layer returns logits: give a loss with from_logits=True, or none."
        raise _refused_model(variable, name, accepted, advice)


def _refuse_own_training(variable: str, name: str, model: keras.Model) -> None:
    """Refuse a model that brings a training of its own, which would never be called."""
    kind = type(model)
    for method in TRAINING_METHODS:
        if getattr(kind, method) is not getattr(keras.Model, method) or method in vars(model):
            accepted = f"a model without a {method} of its own"
            advice = (
                f"{kind.__name__} has a {method} of its own, which this loop would not call. A "
                "script with a training loop of its own, under tf.distribute, runs in this image."
            )
            raise _refused_model(variable, name, accepted, advice)


def warn_of_compiled(model: keras.Model) -> None:
    """Say so if a model was compiled with what is not used here."""
    if model.compiled:
        log.warning(
            "%s was compiled with the optimizer %s and the loss %s: neither is used here, nor its "
            "metrics and weights",
            model.name,
            type(model.optimizer).__name__,
            name_of(model.loss),
        )


def _last_activation(model: keras.Model) -> Any:
    """Return the activation function that makes the output, None where that cannot be seen."""
    if isinstance(model, keras.Sequential):
        last = model.layers[-1]
    elif hasattr(model, "operations"):
        # Functional, where a function such as keras.ops.softmax is no layer; Keras has no public
        # way to it.
        last = model.outputs[0]._keras_history.operation  # noqa: SLF001
    else:  # what a subclass computes after its last layer is its own affair
        return None
    if isinstance(last, keras.layers.Softmax):
        return keras.activations.softmax
    return getattr(last, "activation", None)


def synchronise_batch_norm(name: str, model: keras.Model) -> None:
    """Let BatchNorm reduce its statistics over all replicas, wherever in the model it is.

    Keras' layers look at `synchronized` at each call. To clone the model with other layers would
    need one that is functional; this takes any.

    Raises:
        ConfigurationError: the model has none.
    """
    layers = model._flatten_layers()  # noqa: SLF001  Keras has no public way into nested layers
    found = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
    if not found:
        variable, accepted = shown_name("sync_batch_norm"), f"false for {name}"
        advice = "It has no keras.layers.BatchNormalization, so that nothing would change."
        raise ConfigurationError([Problem(variable, "true", accepted, advice)])
    for layer in found:
        layer.synchronized = True


def _refuse_small_pictures(name: str, data: DataSet) -> None:
    """Say before Keras does what a built-in model needs, and how to get it."""
    shape, smallest = data.train.input_shape, models.SMALLEST_SIDES.get(name, 0)
    if not smallest or (len(shape) == PICTURE and min(shape[:2]) >= smallest):
        return
    accepted = f"a model for the inputs of {data.name}, {list(shape)}"
    advice = (
        f"{name} takes pictures [height, width, channels] of {smallest}x{smallest} pixels or more: "
        f"give a {shown_name('image_size')} of {smallest} or more, or return such pictures if the "
        "data set is a function of your own."
    )
    raise _refused_model(MODEL_VARIABLE, name, accepted, advice)


def _refused_model(variable: str, name: str, accepted: str, advice: str) -> ConfigurationError:
    return ConfigurationError([Problem(variable, name, accepted, advice)])


def build_optimizer(
    config: TrainerConfig, steps: int, global_batch_size: int
) -> keras.optimizers.Optimizer:
    """Build the optimizer that the settings name, for a run of `steps` steps.

    Raises:
        ConfigurationError: the warm-up does not fit into the run.
    """
    rate = learning_rate_of(config, steps, global_batch_size)
    log.info("learning rate %s, %s", rate, config.learning_rate_schedule)
    optimizer = _optimizer(config, _schedule(rate, config.learning_rate_schedule, steps))
    if config.precision == "float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def _optimizer(config: TrainerConfig, learning_rate: Any) -> keras.optimizers.Optimizer:
    if config.optimizer == "adam":
        return keras.optimizers.Adam(learning_rate)
    momentum = 0.9 if config.optimizer == "momentum" else 0.0
    return keras.optimizers.SGD(learning_rate, momentum=momentum)


def _schedule(rate: LearningRate, kind: Literal["constant", "cosine"], steps: int) -> Any:
    schedules = keras.optimizers.schedules
    if kind == "cosine":
        return schedules.CosineDecay(
            rate.start,
            decay_steps=steps - rate.warmup_steps,
            warmup_target=rate.peak if rate.warmup_steps else None,
            warmup_steps=rate.warmup_steps,
        )
    if rate.warmup_steps:  # a straight line, and from its end on its last value
        return schedules.PolynomialDecay(rate.start, rate.warmup_steps, rate.peak, power=1.0)
    return rate.peak
