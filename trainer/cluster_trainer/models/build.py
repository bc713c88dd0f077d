"""Builds the model that the settings name, and refuses models that cannot fit the data."""

import inspect
from collections.abc import Callable
from typing import Any

import keras

from cluster_trainer.data.examples import DataSet
from cluster_trainer.private import keras_names
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.names import models, references
from cluster_trainer.settings.names.spellings import shown_name

MODEL_VARIABLE = shown_name("model")
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}
PICTURE = 3  # the dimensions of one: height, width, channels


def build_model(config: TrainerConfig, data: DataSet) -> keras.Model:
    """Build the model that the settings name, for the data's shapes.

    The precision is set for all of Keras, so that users' own layers use it, too.

    Raises:
        ConfigurationError: the settings do not name a model, the model does not fit the inputs, or
            it has no BatchNormalization to synchronise.
    """
    set_precision(config)
    model = _build_named(config.model, data)
    if config.sync_batch_norm:
        synchronise_batch_norm(config.model, model)
    return model


def set_precision(config: TrainerConfig) -> None:
    """Set the number format of layers that are created from now on, including users' own."""
    keras.config.set_dtype_policy(POLICIES[config.precision])


def _build_named(name: str, data: DataSet) -> keras.Model:
    if data.has_examples:
        _refuse_small_pictures(name, data)
    build = references.resolve(MODEL_VARIABLE, models.reference_of(name))
    arguments = _arguments(name, build, data)
    try:
        model = build(*arguments)
    except (TypeError, ValueError) as error:
        accepted = "a function that builds a model"
        if arguments:
            accepted += f" for inputs {list(arguments[0])}"
        raise refused(MODEL_VARIABLE, name, accepted, str(error)) from error
    if not isinstance(model, keras.Model):
        advice = f"It returned {type(model).__name__}."
        raise refused(MODEL_VARIABLE, name, "a function that returns a keras.Model", advice)
    return model


def _arguments(name: str, build: Callable[..., Any], data: DataSet) -> list[Any]:
    """Return the arguments for a function that builds a model, as many as it takes."""
    told = [data.train.input_shape, data.num_classes] if data.has_examples else []
    required, possible = _positional(build)
    if required > len(told):
        accepted = f"a function of {len(told)} arguments or fewer, for the data of {data.name}"
        advice = f"It needs {required}. It gets (input_shape, num_classes) for arrays (inputs, "
        advice += "labels), and no arguments for other data."
        raise refused(MODEL_VARIABLE, name, accepted, advice)
    return told[:possible]


def _positional(function: Callable[..., Any]) -> tuple[int, int]:
    """Return the numbers of positional arguments that a function needs, and that it takes."""
    kinds = inspect.Parameter
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is kinds.VAR_POSITIONAL for one in parameters):
        return 0, 2
    places = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    positional = [one for one in parameters if one.kind in places]
    return sum(one.default is kinds.empty for one in positional), len(positional)


def check_classifier(
    variable: str, name: str, model: keras.Model, data: DataSet, *, to_logits: bool | None
) -> None:
    """Refuse a classifier whose outputs do not fit its loss.

    Args:
        variable: the name of the setting in messages.
        name: the value of the setting in messages.
        model: the model.
        data: the data that it is to learn, with classes.
        to_logits: True: its loss takes logits; False: probabilities; None: unknown.

    Raises:
        ConfigurationError: the outputs do not fit.
    """
    if getattr(model, "output_shape", None) is None:
        return  # a subclass that is not built yet
    what = "probabilities" if to_logits is False else "logits, without a softmax"
    accepted = f"a keras.Model that returns {data.num_classes} {what}"
    if model.output_shape != (None, data.num_classes):
        raise refused(variable, name, accepted, f"It returns {model.output_shape}.")
    activation = _last_activation(model)
    if to_logits and activation is keras.activations.softmax:
        advice = "Its last layer ends in a softmax; leave it out."
        raise refused(variable, name, accepted, advice)
    if to_logits is False and activation is keras.activations.linear:
        advice = "Its last layer returns logits: give a loss with from_logits=True, or none."
        raise refused(variable, name, accepted, advice)


def _last_activation(model: keras.Model) -> Any:
    """Return the activation function of the output; None: it is unknown."""
    if isinstance(model, keras.Sequential):
        last = model.layers[-1]
    elif hasattr(model, "operations"):  # functional: a function as keras.ops.softmax is no layer
        last = keras_names.made_by(model.outputs[0])
    else:  # a subclass may compute anything after its last layer
        return None
    if isinstance(last, keras.layers.Softmax):
        return keras.activations.softmax
    return getattr(last, "activation", None)


def synchronise_batch_norm(name: str, model: keras.Model) -> None:
    """Let BatchNormalization sum its statistics over all replicas.

    Keras's layers read `synchronized` at each call, so this works with any model. Cloning a model
    with other layers would need a functional one.

    Raises:
        ConfigurationError: the model has no BatchNormalization.
    """
    layers = keras_names.layers_within(model)
    found = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
    if not found:
        variable, accepted = shown_name("sync_batch_norm"), f"false for {name}"
        advice = "It has no keras.layers.BatchNormalization, so nothing would change."
        raise ConfigurationError([Problem(variable, "true", accepted, advice)])
    for layer in found:
        layer.synchronized = True


def _refuse_small_pictures(name: str, data: DataSet) -> None:
    """Refuse inputs that are too small for a built-in model, with better advice than Keras's."""
    shape, smallest = data.train.input_shape, models.SMALLEST_SIDES.get(name, 0)
    if not smallest or (len(shape) == PICTURE and min(shape[:2]) >= smallest):
        return
    accepted = f"a model for the inputs of {data.name}, {list(shape)}"
    advice = (
        f"{name} takes pictures [height, width, channels] of {smallest}x{smallest} pixels or more: "
        f"give a {shown_name('image_size')} of {smallest} or more, or return such pictures if the "
        "data set is a function of your own."
    )
    raise refused(MODEL_VARIABLE, name, accepted, advice)


def refused(variable: str, name: str, accepted: str, advice: str) -> ConfigurationError:
    """Return the error of a model that cannot be trained."""
    return ConfigurationError([Problem(variable, name, accepted, advice)])
