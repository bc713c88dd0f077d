"""Describes the parts of a training, besides its data, that must not change when a fit resumes."""

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.checkpoints.checkpoint import COUNTED
from cluster_trainer.checkpoints.resume import (
    CALLBACKS,
    LAYERS,
    LAYERS_NUMBERS,
    NUMBERS,
    SHUFFLE,
)
from cluster_trainer.fits.identity.numbers_read import of_callbacks, of_parts
from cluster_trainer.private import keras_names

SHOWN_CHARACTERS = 120
METRICS = ("metrics", "weighted_metrics")
TRAINING = ("the loss", "the loss weights", "the metrics", "the class weights", LAYERS)
"""The settings that `training_described` returns; checkpoints of earlier versions lack them."""
VARYING = ("trainable", "seed")
"""Omitted: a callback may freeze a layer later, and some layers draw a seed if none is given."""
CODE = ("__lambda__", "function")
OF_ACTIVATION = {"value"}
"""The only name in the configuration of a lambda that is an activation."""
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def optimizer_described(model: keras.Model) -> dict[str, str]:
    """Return the configuration of the optimizer that a model was compiled with."""
    if model.optimizer is None:
        return {}
    name = type(model.optimizer).__name__
    try:
        config = keras.saving.serialize_keras_object(model.optimizer)["config"]
        text = json.dumps(_that_decides(config), default=_type_name, sort_keys=True)
    except Exception:  # noqa: BLE001  a schedule of a user's own may have no get_config
        text = ""
    return {"the optimizer": f"{name} {text}".rstrip()}


def training_described(model: keras.Model, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the loss, metrics, class weights, layers and callbacks of a fit: name -> value.

    Args:
        model: the model to train.
        arguments: the arguments that were given to `fit`.
    """
    # Keras has no public access to the arguments of `compile`.
    compiled = getattr(keras_names.compile_config(model), "config", {})
    metrics = {name: _parts(compiled.get(name)) for name in METRICS if compiled.get(name)}
    told = [
        _parts(getattr(model, "loss", None)),
        compiled.get("loss_weights"),
        metrics or None,
        arguments.get("class_weight"),
        _digest(_layers(model)),
    ]
    named = zip(TRAINING, told, strict=True)
    found = {name: value for name, value in named if value is not None}
    if not isinstance(arguments.get("x"), (tf.data.Dataset, Iterator)):  # Keras ignores it there
        found[SHUFFLE] = bool(arguments.get(SHUFFLE, True))
    found[CALLBACKS] = of_callbacks(arguments.get("callbacks"))
    found[NUMBERS] = of_parts([getattr(model, "loss", None), *map(compiled.get, METRICS)])
    found[LAYERS_NUMBERS] = of_parts([*_code_of(model)])
    return {name: _short(_text(value)) for name, value in found.items()}


def _layers(model: keras.Model) -> list[Any]:
    """Return the configuration of each layer of a model, in Keras's order."""
    layers = keras_names.layers_within(model, include_self=False)
    return [[type(one).__name__, _config_of(one)] for one in layers]


def _code_of(model: keras.Model) -> Iterator[Any]:
    """Yield a model and its layers, and functions in their attributes, such as activations."""
    for one in keras_names.layers_within(model):
        yield one
        yield from filter(callable, vars(one).values())


def _config_of(thing: Any) -> Any:
    """Return an object's configuration without VARYING; None if a user's own class has none.

    Whether a layer is trainable is compared separately.
    """
    try:
        config = thing.get_config()
    except Exception:  # noqa: BLE001  a user's own get_config may raise anything
        return None
    if not isinstance(config, dict):
        return config
    return {name: value for name, value in config.items() if name not in VARYING}


def _parts(given: Any) -> Any:
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        return {str(name): _parts(one) for name, one in given.items()}
    if isinstance(given, (list, tuple)):
        return [_parts(one) for one in given]
    name = getattr(given, "__name__", type(given).__name__)
    return [name, _config_of(given)]


def _text(config: Any) -> str:
    """Return a configuration as text that is the same in every process."""
    return json.dumps(_plain(config), default=_type_name, sort_keys=True)


def _plain(config: Any) -> Any:
    """Return a configuration without parts that differ between processes.

    Keras numbers the names of layers. A function's serialized code holds its place in a file, so
    it is omitted; changes of code show in the digests of the script's files.
    """
    if isinstance(config, Mapping):
        if config.get("class_name") in CODE or config.keys() == OF_ACTIVATION:
            return "function"
        return {str(name): _plain(value) for name, value in config.items()}
    if isinstance(config, (list, tuple)):
        return [_plain(one) for one in config]
    if isinstance(config, (np.generic, np.ndarray)):
        return config.tolist()
    if isinstance(config, str):
        return ADDRESS.sub("", COUNTED.sub("", config))
    return getattr(config, "__name__", config) if callable(config) else config


def _type_name(value: Any) -> str:
    return type(value).__name__


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}… {_digest(text)}"


def _digest(what: Any) -> str:
    return sha256(_text(what).encode()).hexdigest()[:12]


def _that_decides(config: Any) -> Any:
    """Return a configuration without disabled options, and without names, which Keras numbers."""
    if not isinstance(config, dict):
        return config
    said = {name: value for name, value in config.items() if value not in (None, False)}
    return {name: _that_decides(value) for name, value in said.items() if name != "name"}
