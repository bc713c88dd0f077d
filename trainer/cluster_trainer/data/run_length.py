"""Determines the length of a run, and the batches of its data."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.engine.data.random_access import is_random_access
from cluster_trainer.engine.data.row_dataset import examples_at
from cluster_trainer.private import keras_names
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.names.spellings import shown_name

PICTURE_RANK = 3
FROM_GENERATOR = "tf.data.Dataset.from_generator calls a function again for each epoch."
OF_THE_BATCH = ("per_replica_batch_size", "global_batch_size")


@dataclass(frozen=True)
class RunLength:
    """The length of a run.

    Attributes:
        epochs: the number of epochs.
        steps_per_epoch: the number of global batches in an epoch; None: not known in advance.
        global_batch_size: the number of examples in a step, on all replicas; None: the data come in
            batches.
        examples: the number of training examples in a pass; None: unknown.
    """

    epochs: int
    steps_per_epoch: int | None = None
    global_batch_size: int | None = None
    examples: int | None = None

    @property
    def steps(self) -> int | None:
        """The number of steps of the whole run; None: unknown."""
        return self.steps_per_epoch and self.epochs * self.steps_per_epoch

    @property
    def counts_examples(self) -> bool:
        """Whether `examples_at` knows the number."""
        return self.global_batch_size is not None and self.examples is not None

    def examples_at(self, step: int) -> int:
        """Return how many examples the first `step` steps use."""
        assert self.global_batch_size  # noqa: S101  see counts_examples
        assert self.examples  # noqa: S101
        return examples_at(step, self.examples, self.global_batch_size)


def run_length_of(config: TrainerConfig, data: DataSet, num_replicas: int) -> RunLength:
    """Return the length of a run, from its settings and data.

    Raises:
        ConfigurationError: the settings do not fit the data or the replicas.
    """
    if config.augment != "none":
        _refuse_augmenting(config, data)
    _refuse_endings(config, data)
    batch, examples = _batch_size(config, data, num_replicas), _count(data.train)
    known = math.ceil(examples / batch) if batch and examples else _batches_of(data.train)
    return RunLength(config.epochs, config.steps_per_epoch or known, batch, examples)


def _refuse_endings(config: TrainerConfig, data: DataSet) -> None:
    """Refuse data that would end too early, or never.

    Raises:
        ConfigurationError: the data would.
    """
    steps, problems = shown_name("steps_per_epoch"), []
    if config.steps_per_epoch is None and _is_endless(data.train):
        accepted = f"a number, since the training data of {data.name} never end"
        problems.append(Problem(steps, "", accepted))
    is_used_up = isinstance(data.train, Iterator) and config.epochs > 1
    if is_used_up and config.steps_per_epoch is None:
        accepted = f"a number, since the generator of {data.name} can be read only once"
        problems.append(Problem(steps, "", accepted, FROM_GENERATOR))
    if isinstance(data.test, Iterator) or _is_endless(data.test):
        accepted = "test data that end, and can be read once an epoch"
        received = type(data.test).__name__
        problems.append(Problem(shown_name("dataset"), received, accepted, FROM_GENERATOR))
    if problems:
        raise ConfigurationError(problems)


def _is_endless(part: Any) -> bool:
    if isinstance(part, tf.data.Dataset):
        return bool(int(part.cardinality()) == tf.data.INFINITE_CARDINALITY)
    return bool(isinstance(part, keras.utils.PyDataset) and part.num_batches is None)


def _batch_size(config: TrainerConfig, data: DataSet, num_replicas: int) -> int | None:
    if _count(data.train) is not None:
        return config.batch_size_per_replica(num_replicas) * num_replicas
    accepted = f"not given, since {data.name} gives whole batches: they are the global ones"
    problems = [
        Problem(shown_name(one), str(getattr(config, one)), accepted)
        for one in OF_THE_BATCH
        if getattr(config, one) is not None
    ]
    if problems:
        raise ConfigurationError(problems)
    return None


def _count(part: Any) -> int | None:
    """Return the number of examples; None: the data come in batches."""
    if isinstance(part, Examples) or is_random_access(part):
        return len(part)
    if (arrays := as_arrays(part)) is None:
        return None
    first = tf.nest.flatten(arrays[0])[0]
    if isinstance(first, tf.RaggedTensor):
        return int(first.nrows())
    return int(first.dense_shape[0] if isinstance(first, tf.SparseTensor) else np.shape(first)[0])


def _batches_of(part: Any) -> int | None:
    if isinstance(part, keras.utils.PyDataset):
        return part.num_batches  # type: ignore[no-any-return]
    if isinstance(part, tf.data.Dataset):
        cardinality = int(part.cardinality())
        return cardinality if cardinality >= 0 else None
    return None


def as_arrays(part: Any) -> tuple[Any, ...] | None:
    """Return arrays as (x,), (x, y) or (x, y, sample_weight); None: the data are not arrays."""
    if isinstance(part, (tuple, list)) and 0 < len(part) <= len(("x", "y", "sample_weight")):
        return tuple(part)
    if isinstance(part, dict) or (part is not None and keras_names.can_slice_array(part)):
        return (part,)
    return None


def _refuse_augmenting(config: TrainerConfig, data: DataSet) -> None:
    """Refuse to augment data that are not pictures.

    Raises:
        ConfigurationError: the data are not pictures.
    """
    if not data.has_examples:
        accepted, advice = "none, since the data come as they are", "Augment them there."
    elif len(data.train.input_shape) != PICTURE_RANK:
        accepted, shape = "none, since the inputs are not pictures", list(data.train.input_shape)
        advice = f"Each of {data.name} has the shape {shape}, not [height, width, channels]."
    else:
        return
    raise ConfigurationError([Problem(shown_name("augment"), config.augment, accepted, advice)])
