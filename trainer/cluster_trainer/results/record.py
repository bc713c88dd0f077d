"""Describes the actual parameters of a training, which a script may choose itself.

They are for result.json and about.json.
"""

import json
import sys
from typing import Any

import keras

from cluster_trainer.collectives.replicas import count_of_all, ring_of


def of(model: keras.Model) -> dict[str, Any]:
    """Return the optimizer, the loss and the strategy of a compiled model, as JSON values."""
    strategy = model.distribute_strategy
    return {
        "optimizer": optimizer_of(model.optimizer),
        "loss": name_of(model.loss),
        "strategy": strategy_of(strategy),
        "replicas": count_of_all(strategy),
    }


def script() -> dict[str, Any]:
    """Return the script's path and number of arguments, to repeat the run.

    The arguments themselves may be secrets, and are omitted.
    """
    return {"path": sys.argv[0], "arguments": len(sys.argv) - 1}


def strategy_of(strategy: Any) -> str:
    """Return the name of a strategy, or of the ring that replaces it."""
    return "ring" if ring_of(strategy) else type(strategy).__name__


def optimizer_of(optimizer: Any) -> dict[str, Any]:
    """Return an optimizer's configuration for `keras.optimizers.deserialize`, or only its class."""
    if optimizer is None:  # a model's own steps may have others
        return {"class_name": None}
    try:
        described = keras.optimizers.serialize(optimizer)
    except Exception:  # noqa: BLE001  a user's own get_config may raise anything
        return {"class_name": type_name(optimizer)}
    return dict(described)


def name_of(given: Any) -> Any:
    """Return the name of a loss or a metric; for several, names in the given structure."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, dict):
        return {str(name): name_of(one) for name, one in given.items()}
    if isinstance(given, (list, tuple)):
        return [name_of(one) for one in given]
    try:
        return str(getattr(given, "name", None) or getattr(given, "__name__", type_name(given)))
    except Exception:  # noqa: BLE001  as above
        return type_name(given)


def as_text(what: Any) -> str:
    """Return a part of the record as text that is the same in every process."""
    return json.dumps(what, sort_keys=True, default=type_name)


def type_name(thing: Any) -> str:
    """Return the name of an object's type, which is the same in every process, unlike its repr."""
    return type(thing).__name__
