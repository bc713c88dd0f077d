"""Data that one fit shares with another, or its training with its validation.

A `Dataset.shuffle` has another order for each iterator. A fit that resumes begins the iterators of
the validations that are over, so that its training and its next validation have the orders that
they would have had. If a generator is given to another fit, reading continues there, only
approximately at the right place, because TensorFlow's read-ahead is not recorded.
"""

import inspect
import logging
from collections import deque
from collections.abc import MutableMapping
from itertools import islice
from types import GeneratorType
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from cluster_trainer.checkpoints.checkpoint import Place
from cluster_trainer.engine.data import pipelines
from cluster_trainer.private import keras_names

log = logging.getLogger("trainer")
# For each generator: how many batches an earlier start had read in finished fits.
_unread: MutableMapping[Any, int] = WeakKeyDictionary()


def note_ended(given: inspect.BoundArguments, place: Place) -> None:
    """Note the data that a finished fit does not read again.

    Args:
        given: the fit's arguments.
        place: the step at which it ended.
    """
    data, validation = given.arguments.get("x"), given.arguments.get("validation_data")
    if isinstance(validation, tf.data.Dataset):
        pipelines.note_ended(validation)
    # Keras always takes the first batches of a generator.
    if isinstance(data, GeneratorType) and place.seen > keras_names.NUM_BATCHES_FOR_TENSOR_SPEC:
        _unread[data] = _unread.get(data, 0) + place.seen - keras_names.NUM_BATCHES_FOR_TENSOR_SPEC


def read_on(given: inspect.BoundArguments) -> None:
    """Read a generator to the place where finished fits have left it.

    Args:
        given: the arguments of a fit that continues with it.
    """
    data = given.arguments.get("x")
    if isinstance(data, GeneratorType) and (count := _unread.pop(data, 0)):
        log.info("%d batches of the generator are left out: fits that had ended read them", count)
        deque(islice(data, count), maxlen=0)


def begin_validations(given: inspect.BoundArguments, place: Place) -> None:
    """Begin the validation data as often as an earlier start has.

    Args:
        given: the fit's arguments, as its caller gave them.
        place: the step at which it resumes or begins.
    """
    dataset = given.arguments.get("validation_data")
    if not isinstance(dataset, tf.data.Dataset):
        return
    model, wanted = given.args[0], given.arguments.get("validation_freq", 1)
    over = [
        keras_names.is_validated_after(model, epoch, wanted)
        for epoch in range(place.first, place.epoch)
    ]
    if steps := given.arguments.get("validation_steps"):  # each validation has begun it again
        dataset = dataset.take(steps)
    pipelines.begin(dataset, sum(over))
