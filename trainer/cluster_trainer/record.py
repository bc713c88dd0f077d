"""What a run really trains with, for result.json: a script may override the settings."""

import json
from typing import Any

import keras

from cluster_trainer.loop import Loop


def of(loop: Loop) -> dict[str, Any]:
    """Return the optimizer, the loss and the strategy, as JSON knows them."""
    return {
        "optimizer": _described(loop.optimizer),
        "loss": loop.loss_name,
        "strategy": type(loop.strategy).__name__,
        "replicas": loop.strategy.num_replicas_in_sync,
    }


def _described(optimizer: keras.optimizers.Optimizer) -> dict[str, Any]:
    """Return an optimizer as `keras.optimizers.deserialize` takes it, or else its name alone."""
    try:
        described = keras.optimizers.serialize(optimizer)
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return {"class_name": type_name(optimizer)}
    return dict(described)


def as_text(what: Any) -> str:
    """Return a part of the record as text that is the same in every process."""
    return json.dumps(what, sort_keys=True, default=type_name)


def type_name(thing: Any) -> str:
    """Return the name of a thing's type: in each process its text has another address."""
    return type(thing).__name__
