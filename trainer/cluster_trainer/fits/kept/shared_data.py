"""Data that one fit shares with another, or its training with its validation.

A `Dataset.shuffle` has another order for each iterator. A fit that goes on begins none for the
validations that are over, and one that had ended none at all. They are made up for: whatever
shares their data has the order that it would have had.
"""

import inspect

import tensorflow as tf

from cluster_trainer.callbacks.keeper import Place
from cluster_trainer.engine.data import pipelines


def begin_validations(given: inspect.BoundArguments, place: Place) -> None:
    """Begin the validation data as often as an earlier start has validated.

    Args:
        given: the fit's arguments, as its caller gave them.
        place: where it goes on, or begins.
    """
    dataset = given.arguments.get("validation_data")
    if not isinstance(dataset, tf.data.Dataset):
        return
    model, wanted = given.args[0], given.arguments.get("validation_freq", 1)
    over = [model._should_eval(epoch, wanted) for epoch in range(place.first, place.epoch)]  # noqa: SLF001
    pipelines.begin_again(dataset, sum(over), "validation")
