"""Refuses what is not supported with Keras on JAX, before anything is trained."""

import inspect
import threading
from typing import Any

import keras

from cluster_trainer.fits.script.variables import FOLDERS
from cluster_trainer.on_jax.steps.batches import GlobalBatches
from cluster_trainer.private import keras_jax_names
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.config import setting_names
from cluster_trainer.settings.job import Job

ADVICE = "The image with TensorFlow has it: docs/how-to/jax.md."
SETTINGS = {
    "strategy": ("auto",),
    "devices": (None,),
    "logical_cpus": (None,),
    "collectives": ("auto",),
    "wire": ("float32",),
    "sync_every": (1,),
    "profile_steps": (None,),
}
"""Settings that only TensorFlow's engine supports, with the values that are accepted here."""
HEEDED = ("run_dir", "checkpoint_steps", "resume", "keep_earlier", "startup_timeout_seconds")
"""Settings that apply to a fit on JAX."""
READERS = (
    keras_jax_names.ArrayDataAdapter,
    keras_jax_names.PyDatasetAdapter,
    keras_jax_names.GeneratorDataAdapter,
)


def unheeded() -> set[str]:
    """Return the settings that have no effect on JAX, and are not refused."""
    return {*setting_names()} - {*HEEDED, *SETTINGS, *FOLDERS}


def refuse_settings(job: Job) -> None:
    """Refuse settings that are not supported on JAX.

    Raises:
        ConfigurationError: there are such settings; it names all of them.
    """
    config = job.config
    problems = [
        _problem(f"TRAINER_{name.upper()}", str(getattr(config, name)), "not set, on JAX")
        for name, accepted in SETTINGS.items()
        if getattr(config, name) not in accepted
    ]
    if job.may_be_fewer:
        problems.append(_problem("MIN_WORKERS", "fewer than all", "all workers, or not set"))
    if problems:
        raise ConfigurationError(problems)


def refuse_fit(given: inspect.BoundArguments, *, several: bool) -> None:
    """Refuse a fit that several workers cannot compute as one device, or that could not resume.

    Args:
        given: the fit's arguments.
        several: whether there are several workers.

    Raises:
        ConfigurationError: there are problems; it lists all of them.
    """
    model, problems = given.args[0], []
    if keras.distribution.distribution() is not None:
        problems.append(_problem("keras.distribution.set_distribution", "called", "not called"))
    if model.run_eagerly or not model.jit_compile:
        problems.append(_problem("compile", "run_eagerly or no jit_compile", "a compiled step"))
    if model.steps_per_execution != 1:
        received = str(model.steps_per_execution)
        problems.append(_problem("steps_per_execution", received, "1"))
    if type(model).make_train_function is not keras_jax_names.JAXTrainer.make_train_function:
        problems.append(_problem("make_train_function", "the model's own", "Keras's"))
    if several and threading.current_thread() is not threading.main_thread():
        problems.append(_problem("fit", "in a thread", "in the script's main thread"))
    if problems:
        raise ConfigurationError(problems)


def refuse_data(adapter: Any, shuffle: Any) -> None:
    """Refuse data whose order cannot be made the same on all workers.

    Args:
        adapter: Keras's own adapter of the data.
        shuffle: the argument of `fit`.

    Raises:
        ConfigurationError: they are not arrays, a PyDataset or a generator, or `shuffle` is
            "batch".
    """
    if shuffle == "batch":
        raise ConfigurationError([_problem("shuffle", "batch", "True or False")])
    if not isinstance(adapter, READERS) and not isinstance(adapter, GlobalBatches):
        received = type(adapter).__name__.removesuffix("Adapter")
        accepted = "arrays, a keras.utils.PyDataset, or a generator"
        raise ConfigurationError([_problem("the data of fit", received, accepted)])


def refuse_inner() -> None:
    """Refuse a fit while another one runs.

    Raises:
        ConfigurationError: always.
    """
    accepted = "one fit after the other"
    raise ConfigurationError([_problem("fit", "a fit within a fit, or two at a time", accepted)])


def refuse_call(name: str, accepted: str) -> None:
    """Refuse a call that is not supported on several workers.

    Args:
        name: the name of the call.
        accepted: a text about the accepted alternative.

    Raises:
        ConfigurationError: always.
    """
    raise ConfigurationError([_problem(name, "called, on several workers", accepted)])


def _problem(name: str, received: str, accepted: str) -> Problem:
    return Problem(name, received, accepted, ADVICE)
