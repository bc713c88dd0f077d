"""Compares workers before a fit, and describes what must be unchanged when the fit resumes."""

import inspect
import json
import re
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import jax
import numpy as np

from cluster_trainer.checkpoints.checkpoint import COUNTED
from cluster_trainer.checkpoints.resume import CALLBACKS
from cluster_trainer.fits.identity.numbers_read import of_callbacks
from cluster_trainer.fits.identity.weights import Summary, sampled, summary_of
from cluster_trainer.fits.shared.differing_callbacks import warn_of_callbacks
from cluster_trainer.on_jax.steps.batches import GlobalBatches
from cluster_trainer.on_jax.workers.cluster import JaxWorkers
from cluster_trainer.private import keras_jax_names
from cluster_trainer.problems import ConfigurationError, Problem, told
from cluster_trainer.same_code import library_settings
from cluster_trainer.same_code.script_text import code, differences, digest_of
from cluster_trainer.settings.task import names_of

CODE = "the script's code"
SAME_CODE = "Copy the files to all machines again, or use the same packages and settings there."
VARYING = {"name", "seed", "trainable", "layers", "build_config"}
ARGUMENTS = ("steps_per_epoch", "epochs", "initial_epoch", "validation_freq")
"""The arguments of `fit` that determine when the workers exchange messages."""


def compare_code(workers: JaxWorkers) -> None:
    """Refuse workers whose script, packages, settings or arguments differ; all workers call this.

    Raises:
        ConfigurationError: they differ. It is raised on every worker.
    """
    mine = code(library_settings.found()) | {"file the arguments": digest_of(repr(sys.argv[1:]))}
    everyone = [json.loads(one) for one in workers.exchange(json.dumps(mine), CODE)]
    names = names_of(range(workers.count))
    if unlike := differences(everyone, names):
        received = f"other than {names[0]}: {'; '.join(unlike)}"
        raise ConfigurationError([Problem(CODE, received, "the same on all workers", SAME_CODE)])


def compare(workers: JaxWorkers, facts: Mapping[str, str]) -> None:
    """Compare facts between workers, and refuse differences; all workers call this.

    Args:
        workers: the workers that train together.
        facts: this worker's facts: name -> value.

    Raises:
        ConfigurationError: facts differ; it names all differences, on every worker.
    """
    everyone = [json.loads(one) for one in workers.exchange(json.dumps(dict(facts)), "facts")]
    problems = []
    for name in sorted({name for one in everyone for name in one}):
        values = [str(one.get(name)) for one in everyone]
        if len(set(values)) > 1:
            advice = f"{told(names_of(range(workers.count)), values)}."
            mine = values[workers.rank]
            problems.append(Problem(name, mine, "the same on all workers", advice))
    if problems:
        raise ConfigurationError(problems)


def of_this_start(given: inspect.BoundArguments) -> dict[str, str]:
    """Return the facts that must be the same on all workers, but may change at a resume."""
    devices = [one.device_kind for one in jax.local_devices()]
    told = {f"fit's {name}": str(given.arguments.get(name)) for name in ARGUMENTS}
    return told | {
        "the devices": f"{len(devices)} of {', '.join(sorted(set(devices)))}",
        "whether 64 bits are used": str(jax.config.jax_enable_x64),
    }


def steering(callbacks: Sequence[Any]) -> dict[str, str]:
    """Return the facts that must be unchanged at a resume, but may differ between workers."""
    return {CALLBACKS: json.dumps(of_callbacks(callbacks), default=_name, sort_keys=True)}


def unlike(workers: JaxWorkers, steers: Mapping[str, str]) -> set[str]:
    """Return the names of the facts of `steering` that differ between workers.

    All workers call this. A difference causes a warning.
    """
    values = workers.exchange(steers[CALLBACKS], CALLBACKS)
    if len(set(values)) == 1:
        return set()
    warn_of_callbacks(told(names_of(range(workers.count)), values))
    return {CALLBACKS}


def described(
    model: Any, given: inspect.BoundArguments, batches: GlobalBatches, class_weight: Any
) -> dict[str, str]:
    """Return the facts that must be the same on all workers and at a resume: name -> value."""
    layers = [[type(one).__name__, _config_of(one)] for one in keras_jax_names.layers_of(model)]
    try:
        compiled = json.dumps(model.get_compile_config(), default=_name, sort_keys=True)
    except Exception:  # noqa: BLE001  a user's own loss may have no configuration
        compiled = _name(model.loss)
    return {
        **batches.described,
        "the steps per epoch": str(given.arguments.get("steps_per_epoch")),
        "the optimizer, losses and metrics": _digest(compiled),
        "the layers": _digest(json.dumps(layers, default=_name, sort_keys=True)),
        "the class weights": str(class_weight),
    }


def weights_of(model: Any) -> Summary | None:
    """Return a summary of a model's weights; None if there are none yet."""
    if not (model.built and model.variables):
        return None
    return summary_of([sampled(np.asarray(one.value).reshape(-1)) for one in model.variables])


def _config_of(layer: Any) -> Any:
    try:
        config = layer.get_config()
    except Exception:  # noqa: BLE001  a user's own get_config may raise anything
        return None
    return {name: value for name, value in config.items() if name not in VARYING}


def _name(value: Any) -> str:
    return getattr(value, "__name__", type(value).__name__)


def _digest(text: str) -> str:
    plain = re.sub(r" at 0x[0-9a-f]+", "", COUNTED.sub("", text))
    return sha256(plain.encode()).hexdigest()[:12]
