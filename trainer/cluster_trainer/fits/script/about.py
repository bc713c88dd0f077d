"""Describes a script's fit for reports: its settings, versions, model and data."""

from collections.abc import Mapping
from typing import Any

import keras

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.replicas import count_of_all
from cluster_trainer.private import keras_names
from cluster_trainer.process.lifecycle import versions
from cluster_trainer.results import record
from cluster_trainer.settings.groups import OF_SCRIPTS
from cluster_trainer.settings.job import Job

METRICS = ("metrics", "weighted_metrics")
ARGUMENTS = (
    "initial_epoch",
    "validation_split",
    "validation_steps",
    "validation_batch_size",
    "validation_freq",
    "shuffle",
)
"""The arguments of `fit` that are recorded, if given; batches are described separately."""


def asked_of(model: keras.Model, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a script's fit, name -> JSON value.

    Call it before the fit begins, because a checkpoint or a callback may change the learning rate.

    Args:
        model: the model to train.
        arguments: the arguments that were given to `fit`.
    """
    # Keras has no public access to the arguments of `compile`.
    compiled = getattr(keras_names.compile_config(model), "config", {})
    given = {name: arguments[name] for name in ARGUMENTS if arguments.get(name) is not None}
    return {
        "optimizer": record.optimizer_of(model.optimizer),
        "loss": record.name_of(getattr(model, "loss", None)),
        "loss_weights": compiled.get("loss_weights"),
        **{name: record.name_of(compiled.get(name)) for name in METRICS},
        "epochs": arguments.get("epochs", 1),
        **given,
    }


def about(
    job: Job, model: keras.Model, asked: Mapping[str, Any], data: Mapping[str, str]
) -> dict[str, Any]:
    """Return the description of a script's fit; its members are named as in result.json.

    Args:
        job: the settings, and this worker's task.
        model: the model to train.
        asked: the parameters from `asked_of`.
        data: facts about the training data and their division: name -> value.
    """
    strategy, settings = model.distribute_strategy, job.config.as_json()
    if settings["sync_every"] == "auto" and not process_ring.are_rounds_open():
        settings["sync_every"] = process_ring.steps_of_round()  # which repeats the run
    return {
        "script": record.script(),
        "workers": job.task.num_workers,
        "replicas": count_of_all(strategy),
        "strategy": record.strategy_of(strategy),
        "versions": {**versions(), **job.image},
        "settings": {name: settings[name] for name in OF_SCRIPTS},
        "fit": {
            "model": model.name,
            "weights": model.count_params() if model.built else None,
            **asked,
            "seed": keras_names.get_random_seed(),
            "data": {name: text for name, text in data.items() if text != str(None)},
        },
    }
