"""How long a run is, and how its data are cut into batches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.engine.data.random_access import is_random_access
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.config import TrainerConfig, shown_name

PICTURE_RANK = 3
OF_THE_BATCH = ("per_replica_batch_size", "global_batch_size")


@dataclass(frozen=True)
class Plan:
    """How long a run is.

    Attributes:
        epochs: how many there are.
        steps_per_epoch: global batches in each; None: nobody knows before.
        global_batch_size: examples of a step, on all replicas; None: as the data give them.
        examples: training examples in a pass; None: nobody knows.
    """

    epochs: int
    steps_per_epoch: int | None = None
    global_batch_size: int | None = None
    examples: int | None = None

    @property
    def steps(self) -> int | None:
        """Steps of the whole run."""
        return self.steps_per_epoch and self.epochs * self.steps_per_epoch

    @property
    def counts_examples(self) -> bool:
        """Whether `examples_at` can tell."""
        return self.global_batch_size is not None and self.examples is not None

    def examples_at(self, step: int) -> int:
        """Return how many examples the first `step` steps see."""
        assert self.global_batch_size  # noqa: S101  see counts_examples
        assert self.examples  # noqa: S101
        steps_per_pass = math.ceil(self.examples / self.global_batch_size)
        passes, in_pass = divmod(step, steps_per_pass)
        return passes * self.examples + in_pass * self.global_batch_size


def make_plan(config: TrainerConfig, data: DataSet, num_replicas: int) -> Plan:
    """Cut the data as the settings say.

    Raises:
        ConfigurationError: the global batch size cannot be shared out among the replicas, the data
            come in batches of their own, or what is to be augmented are no pictures.
    """
    if config.augment != "none":
        _refuse_augmenting(config, data)
    batch, examples = _batch_size(config, data, num_replicas), _count(data.train)
    known = math.ceil(examples / batch) if batch and examples else _batches_of(data.train)
    return Plan(config.epochs, config.steps_per_epoch or known, batch, examples)


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
    """Return how many examples there are; None where the data come in batches."""
    if isinstance(part, Examples) or is_random_access(part):
        return len(part)
    if are_arrays(part):
        return len(tf.nest.flatten(part[0])[0])
    return None


def _batches_of(part: Any) -> int | None:
    if isinstance(part, keras.utils.PyDataset):
        return part.num_batches  # type: ignore[no-any-return]
    if isinstance(part, tf.data.Dataset):
        cardinality = int(part.cardinality())
        return cardinality if cardinality >= 0 else None
    return None


def are_arrays(part: Any) -> bool:
    """Tell whether these are (x, y) or (x, y, sample_weight), each of arrays."""
    return isinstance(part, Sequence) and 1 < len(part) <= len(("x", "y", "sample_weight"))


def _refuse_augmenting(config: TrainerConfig, data: DataSet) -> None:
    """Refuse to augment what are no pictures.

    Raises:
        ConfigurationError: they are none.
    """
    if not data.has_examples:
        accepted, advice = "none, since the data come as they are", "Augment them there."
    elif len(data.train.input_shape) != PICTURE_RANK:
        accepted, shape = "none, since the inputs are no pictures", list(data.train.input_shape)
        advice = f"Each of {data.name} has the shape {shape}, not [height, width, channels]."
    else:
        return
    raise ConfigurationError([Problem(shown_name("augment"), config.augment, accepted, advice)])
