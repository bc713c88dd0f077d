"""Reads the settings in a script's call of `fit` or `start_strategy`, besides the variables."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.engine.calls.in_step import keeps_in_step
from cluster_trainer.fits.script.variables import FOLDERS
from cluster_trainer.models.own_optimizer import compute_dtypes
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.config import setting_names
from cluster_trainer.settings.groups import OF_SCRIPTS, OWN
from cluster_trainer.settings.job import Job, read_job

OWN_ARRAYS = "arrays of the script's own"
OF_THE_STRATEGY = (
    "strategy",
    "logical_cpus",
    "devices",
    "collectives",
    "wire",
    "sync_every",
    "silence_seconds",
    "threads",
    "gpus_per_worker",
)
# Settings that only the trainer's own process uses; the entrypoint watches a script.
OF_THE_PROCESS = {
    "startup_timeout_seconds": "the entrypoint's variable STARTUP_TIMEOUT",
    "stop_seconds": "the entrypoint's variable STOP_GRACE_SECONDS",
}
OF_THE_START = {"precision", *OF_THE_STRATEGY}
# The settings that `start_strategy` has used in this process.
_started_with: set[str] = set()


def unheeded() -> set[str]:
    """Return the settings that have no effect on Keras's own `fit` in this script."""
    return {*setting_names()} - {*FOLDERS, *OF_SCRIPTS, *_started_with}


def read_start(environ: Mapping[str, str], settings: Mapping[str, Any]) -> Job:
    """Read the arguments of `start_strategy`, and the variables.

    Raises:
        ConfigurationError: a setting is not acceptable, or would have no effect.
    """
    of_fit = {*setting_names()} - {*OF_THE_START, *OF_THE_PROCESS}
    strangers = [name for name in settings if name in of_fit]
    problems = [_do_nothing(name, settings, "an argument of fit") for name in strangers]
    job = read_job(environ, [], settings, problems + _of_the_process(settings))
    _started_with.update(OF_THE_START)
    return job


def read_fit(
    environ: Mapping[str, str],
    model: Any,
    dataset: str | Any,
    settings: Mapping[str, Any],
    *,
    overridden: Collection[str],
) -> Job:
    """Read the arguments of `cluster_trainer.fit`, and the variables.

    In the returned settings, the model, the data, the precision and overridden settings describe
    the script's own objects.

    Args:
        environ: the environment, with TRAINER_ variables.
        model: the script's model.
        dataset: the name of a data set, or the script's arrays.
        settings: the script's settings, by name.
        overridden: the names of settings that the script replaces with its own objects.

    Raises:
        ConfigurationError: a setting is not acceptable, or would have no effect.
    """
    if not isinstance(model, keras.Model):
        raise ConfigurationError([Problem("model", type(model).__name__, "a keras.Model")])
    accepted = dict.fromkeys(OF_THE_STRATEGY, "an argument of start_strategy")
    accepted |= dict.fromkeys(overridden, "not set if an optimizer or a compiled model is given")
    problems = [
        _do_nothing(name, settings, accepted[name]) for name in settings if name in accepted
    ]
    named = {"dataset": dataset} if isinstance(dataset, str) else {}
    job = read_job(environ, [], {**settings, **named}, problems + _of_the_process(settings))
    own = {"model": model.name, "precision": _precision(model, job.config.precision)}
    own |= {} if named else {"dataset": OWN_ARRAYS}
    own |= dict.fromkeys(overridden, OWN)
    return replace(job, config=job.config.model_copy(update=own))


def strategy_of(model: keras.Model, num_workers: int) -> tf.distribute.Strategy:
    """Return the strategy in whose scope the model was built.

    Raises:
        ConfigurationError: the model has no variables yet, the call is within a strategy's scope,
            the strategy is not supported, or each worker would train alone.
    """
    if not model.weights:
        raise _refused(model, "a model whose variables exist: begin it with keras.Input(shape)")
    if tf.distribute.has_strategy():
        raise _refused(model, "a call of fit after `with strategy.scope():`, not within it")
    strategy = getattr(model.weights[0].value, "distribute_strategy", tf.distribute.get_strategy())
    if not keeps_in_step(strategy):
        accepted = (
            "one of MirroredStrategy, MultiWorkerMirroredStrategy, OneDeviceStrategy, or none"
        )
        raise _refused(model, f"a model built in the scope of {accepted}")
    several = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    if num_workers > 1 and not several and ring_of(strategy) is None:
        advice = f"The cluster has {num_workers} workers; each would train by itself."
        raise _refused(model, "a model built in start_strategy().scope()", advice)
    return strategy


def _refused(model: keras.Model, accepted: str, advice: str = "") -> ConfigurationError:
    return ConfigurationError([Problem("model", model.name, accepted, advice)])


def _of_the_process(settings: Mapping[str, Any]) -> list[Problem]:
    return [
        _do_nothing(name, settings, accepted)
        for name, accepted in OF_THE_PROCESS.items()
        if name in settings
    ]


def _do_nothing(name: str, settings: Mapping[str, Any], accepted: str) -> Problem:
    return Problem(name, str(settings[name]), accepted, "It would do nothing here.")


def _precision(model: keras.Model, wanted: str) -> str:
    """Return the number format in which the model computes.

    Raises:
        ConfigurationError: `wanted` is another one, and not the default.
    """
    dtypes = compute_dtypes(model)
    found = next((one for one in ("float16", "bfloat16") if one in dtypes), "float32")
    if wanted not in ("float32", found):
        accepted = f"{found}, which the model computes in"
        advice = "Call start_strategy, which sets it, before the model is built."
        raise ConfigurationError([Problem("precision", wanted, accepted, advice)])
    return found
