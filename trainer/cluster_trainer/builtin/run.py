"""The training of the built-in trainer: its parts, its identity, and its results."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256

import keras
import numpy as np

from cluster_trainer.callbacks.recording.epoch_metrics import Line
from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.data.run_length import RunLength
from cluster_trainer.fits.identity.training_description import training_described
from cluster_trainer.results import record
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.names.spellings import variable_of


@dataclass(frozen=True)
class Run:
    """The parts of a training.

    Attributes:
        job: the settings, and this worker's task.
        plan: the length of the run.
        data: the training and test data.
        model: the compiled model.
        own: the names in `record.of` whose values a script, or a user's module, has chosen.
    """

    job: Job
    plan: RunLength
    data: DataSet
    model: keras.Model
    own: Collection[str] = ()


@dataclass(frozen=True)
class Completed:
    """The results of a run.

    Attributes:
        weights: the model's weights, in its own order.
        epochs: the metrics of every epoch, including those of earlier starts; see EpochMetrics.
        steps: the number of steps, including those of earlier starts.
    """

    weights: list[np.ndarray]
    epochs: list[Line]
    steps: int


def described_of(run: Run) -> dict[str, str]:
    """Return the values that must be unchanged when a run resumes: name -> value."""
    used = record.of(run.model)
    own = {f"the {name}": record.as_text(used[name]) for name in run.own}
    return training_described(run.model, {}) | _settings_of(run) | own


def _settings_of(run: Run) -> dict[str, str]:
    """Return the values that must match a checkpoint for a run to resume: name -> value.

    The number of workers may differ, as long as the global batch is the same.
    """
    described = run.job.config.run_settings()
    if run.data.has_examples:
        described |= {
            variable_of("global_batch_size"): str(run.plan.global_batch_size),
            variable_of("steps_per_epoch"): str(run.plan.steps_per_epoch),
            "training examples": f"{run.plan.examples} of {run.data.name}",
        }
    return described


def facts_of(config: TrainerConfig, data: DataSet, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the values that must be the same on all workers: name -> value.

    Args:
        config: the settings.
        data: the data that this worker has loaded.
        settings: the facts about the run that a checkpoint stores.
    """
    parts = {"training": data.train, "test": data.test}
    examples = {name: part for name, part in parts.items() if isinstance(part, Examples)}
    shapes = {
        f"type and shape of the {name} inputs": f"{len(part)} of {part.described}"
        for name, part in examples.items()
    }
    labels = {f"SHA-256 of the {name} labels": _digest(part) for name, part in examples.items()}
    return {**config.shared_settings(), **settings, **shapes, **labels}


def _digest(part: Examples) -> str:
    return sha256(part.typed_labels.tobytes()).hexdigest()[:12]
