"""Adapts the arguments of a fit for Keras: its data, its callbacks, and the epoch to begin with."""

import inspect
from pathlib import Path
from typing import Any

import keras

from cluster_trainer.callbacks.chief import for_worker
from cluster_trainer.callbacks.progress_report import ProgressReport
from cluster_trainer.callbacks.recording.epoch_metrics import EpochMetrics
from cluster_trainer.callbacks.recording.records import ClusterTrainerRecords
from cluster_trainer.on_jax import refusals
from cluster_trainer.on_jax.callbacks.keeping import Keeping
from cluster_trainer.on_jax.callbacks.logs_of_chief import LogsOfChief
from cluster_trainer.on_jax.one_fit import Fit
from cluster_trainer.on_jax.steps.batches import GlobalBatches
from cluster_trainer.private import any_backend, keras_jax_names
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.results.metrics_file import MetricsFile
from cluster_trainer.results.status_file import status_file
from cluster_trainer.settings.job import Job


def callbacks_of(given: inspect.BoundArguments) -> list[Any]:
    """Return the script's callbacks, in one list."""
    callbacks = given.arguments.get("callbacks") or []
    callbacks = callbacks.callbacks if hasattr(callbacks, "callbacks") else callbacks
    return [one for one in keras.tree.flatten(callbacks) if one is not None]


def global_batches(given: inspect.BoundArguments, number: int) -> GlobalBatches:
    """Replace a fit's data by the global batches, in an order that is the same on all workers.

    Args:
        given: the fit's arguments, which are changed.
        number: the number of earlier fits of this process.

    Raises:
        ConfigurationError: data of this kind, or their order, are not supported.
    """
    arguments = given.arguments
    names = ("x", "y", "sample_weight")
    data = tuple(arguments.get(name) for name in names)
    split = arguments.get("validation_split", 0.0)
    if split and arguments.get("validation_data") is None:
        data, validation = keras_jax_names.train_validation_split(data, validation_split=split)
        arguments |= {"validation_data": validation, "validation_split": 0.0}
    x, y, sample_weight = data
    shuffle = arguments.get("shuffle", True)
    adapter = keras_jax_names.get_data_adapter(
        x=x,
        y=y,
        sample_weight=sample_weight,
        batch_size=arguments.get("batch_size"),
        steps_per_epoch=arguments.get("steps_per_epoch"),
        shuffle=shuffle,
        class_weight=arguments.get("class_weight"),
    )
    refusals.refuse_data(adapter, shuffle)
    seed = any_backend.get_random_seed()
    batches = GlobalBatches(adapter, number if seed is None else seed + number)
    given.arguments |= {"x": batches, "y": None, "sample_weight": None, "class_weight": None}
    return batches


def arrange(given: inspect.BoundArguments, fit: Fit, job: Job, folder: Path) -> None:
    """Change a fit's callbacks, and the epoch with which it begins.

    Args:
        given: the fit's arguments, which are changed.
        fit: the parts of the fit.
        job: the settings, and this worker's task.
        folder: the fit's own folder.

    Raises:
        ConfigurationError: the checkpoint has more epochs than the fit is to have.
    """
    arguments, place = given.arguments, fit.place
    epochs = int(arguments.get("epochs", 1))
    if place.epoch > epochs and not place.stopped and fit.found:
        accepted = f"{place.epoch} or more, the epochs that the checkpoint has trained"
        raise ConfigurationError([Problem("epochs", str(epochs), accepted)])
    first = epochs if place.stopped else min(place.epoch, epochs)
    callbacks = for_worker(callbacks_of(given), is_chief=job.task.is_chief, keeps=bool(fit.every))
    if not any(isinstance(one, keras.callbacks.History) for one in callbacks):
        callbacks.append(keras.callbacks.History())
    for one in callbacks:
        if fit.found and isinstance(one, keras.callbacks.CSVLogger):
            one.append = True
    if fit.had_ended and first == epochs:  # their states are restored, and they are not called
        histories = [one for one in callbacks if isinstance(one, keras.callbacks.History)]
        arguments["callbacks"] = [*histories, Keeping(fit, callbacks)]
    else:
        arguments["callbacks"] = _all_callbacks(callbacks, fit, job, folder)
    arguments["initial_epoch"] = first
    if not job.task.is_chief:
        arguments["verbose"] = 0


def _all_callbacks(callbacks: list[Any], fit: Fit, job: Job, folder: Path) -> list[Any]:
    file = MetricsFile(folder)
    metrics = EpochMetrics(
        place=lambda: keeping.place,
        examples_at=None,
        test_examples=None,
        report=lambda lines, _: file.note(lines) if lines and job.task.is_chief else None,
    )
    records = ClusterTrainerRecords(lambda: [metrics] if fit.every else [])
    keeping = Keeping(fit, [*callbacks, records])
    report = ProgressReport(status_file(job.status_file), lambda: keeping.place, has_limit=True)
    return [LogsOfChief(fit.workers), *callbacks, records, report, keeping]
