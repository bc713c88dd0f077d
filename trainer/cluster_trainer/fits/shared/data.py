"""Restores data that fits share, or that a fit's training shares with its validation.

A `Dataset.shuffle` has another order for each iterator. A fit that resumes begins iterators for the
validations that are over. So its training and its next validation get the same orders as without
the interruption.

A generator that finished fits have read is read to the place where they left it. This place is only
approximate, because TensorFlow's read-ahead is not recorded.
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
# For each generator, the number of batches that finished fits had read in an earlier start.
_unread: MutableMapping[Any, int] = WeakKeyDictionary()


def note_ended(given: inspect.BoundArguments, place: Place) -> None:
    """Note the data that a finished fit does not read again.

    Args:
        given: the fit's arguments.
        place: the place at which the fit ended.
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
        given: the fit's original arguments.
        place: the place at which the fit begins or resumes.
    """
    dataset = given.arguments.get("validation_data")
    if not isinstance(dataset, tf.data.Dataset):
        return
    model, wanted = given.args[0], given.arguments.get("validation_freq", 1)
    over = [
        keras_names.is_validated_after(model, epoch, wanted)
        for epoch in range(place.first, place.epoch)
    ]
    if steps := given.arguments.get("validation_steps"):  # each validation has read only these
        dataset = dataset.take(steps)
    pipelines.begin(dataset, sum(over))
