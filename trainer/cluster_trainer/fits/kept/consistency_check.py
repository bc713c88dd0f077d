"""Checks that all workers train the same, and that a checkpoint belongs to the same fit.

The gate has compared the environment. This module compares its effects: the arguments that a script
passes, the data that each worker has loaded, and the model's variables.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256

import keras
import tensorflow as tf

from cluster_trainer.checkpoints.checkpoint import Stage, uncounted
from cluster_trainer.checkpoints.resume import (
    CALLBACKS,
    DATA_NUMBERS,
    LAYERS,
    LAYERS_NUMBERS,
    NUMBERS,
    OF_A_WORKER,
    SHUFFLE,
    refuse_other_run,
)
from cluster_trainer.collectives import local_devices, process_ring
from cluster_trainer.collectives.replicas import count_of, ring_of
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.engine.compared_facts import Facts, differing, of_all
from cluster_trainer.engine.data import pipelines
from cluster_trainer.fits.identity.training_description import TRAINING
from cluster_trainer.fits.kept.finding import Start
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.fits.shared.differing_callbacks import warn_of_callbacks
from cluster_trainer.problems import ConfigurationError, Problem, told
from cluster_trainer.same_code import library_settings, script_text
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.names.spellings import PREFIX, shown_name, variable_of
from cluster_trainer.settings.task import Task

log = logging.getLogger("trainer")
SETTINGS = "fit (settings and data)"
THE_SAME = "the same on all workers"
THE_SAME_DATA = "Every worker loads all examples in the same order, and uses its own slices."
OF_DATA = ("SHA-256", "the arrays", "the batch size", "batches of a pass")
"""How the names of facts about the data begin; all others are about the call and the model."""
THE_SAME_CALL = "Every worker compiles the same model, and calls `fit` with the same arguments."


def refuse_differing(workers: Workers, task: Task, facts: Mapping[str, str]) -> None:
    """Compare facts between workers, and refuse differences; all workers must call this.

    Facts of `OF_A_WORKER` may differ. The fit warns of them later, see `refuse_others`.

    Raises:
        ConfigurationError: facts differ; it names all differences, on every worker.
        PeerUnfit: only new workers differ, and this is not one of them; see newcomers.py.
    """
    common = {name: value for name, value in facts.items() if name not in OF_A_WORKER}
    everyone = of_all(workers, common, SETTINGS)
    if not everyone:
        return
    answers = [json.dumps(one) for one in everyone]
    workers.leave_out_or_part(answers, "its settings, its data or its model")
    names = [task.name_of(place) for place in workers.members]
    raise ConfigurationError(_problems(everyone, names, workers.rank))


def refuse_wire(config: TrainerConfig, strategy: tf.distribute.Strategy) -> None:
    """Refuse the setting `wire` without a ring.

    Raises:
        ConfigurationError: TensorFlow's collectives would send gradients in their own format.
    """
    if config.wire != "float32" and ring_of(strategy) is None and not _is_alone(strategy):
        advice = (
            f"TensorFlow sums the gradients of this {type(strategy).__name__}, and only a ring "
            "sends them in this format."
        )
        raise ConfigurationError([Problem(shown_name("wire"), config.wire, "float32", advice)])


def refuse_rounds(config: TrainerConfig, strategy: tf.distribute.Strategy) -> None:
    """Refuse to average weights every few steps without a ring; warn if this process is alone.

    Raises:
        ConfigurationError: TensorFlow's collectives would sum gradients in each step.
    """
    if config.sync_every == 1 or ring_of(strategy) is not None:
        return
    if _is_alone(strategy):
        _warn_of_no_rounds(variable_of("sync_every"))
        return
    advice = (
        f"TensorFlow sums the gradients of this {type(strategy).__name__} in each step. Only the "
        "workers of a ring take steps by themselves."
    )
    name, received = shown_name("sync_every"), str(config.sync_every)
    raise ConfigurationError([Problem(name, received, "1", advice)])


def _is_alone(strategy: tf.distribute.Strategy) -> bool:
    """Tell whether a process trains alone, on one device or on all devices of its machine."""
    return count_of(strategy) == 1 or local_devices.is_of_all(strategy)


@cache
def _warn_of_no_rounds(name: str) -> None:
    log.warning("%s does nothing: this process trains alone, and averages nothing", name)


def rounds_described() -> dict[str, str]:
    """Return after how many steps a ring averages weights, name -> value; empty if it does not."""
    every = process_ring.steps_of_round()
    return {variable_of("sync_every"): str(every)} if every > 1 else {}


def _rounds() -> str:
    return "auto" if process_ring.are_rounds_open() else str(process_ring.steps_of_round())


def _problems(everyone: Sequence[Facts], names: Sequence[str], me: int) -> list[Problem]:
    """Return a problem for each fact that differs.

    Args:
        everyone: the workers' facts, in rank order.
        names: the workers' names, in rank order.
        me: this worker's rank.
    """
    problems = []
    for name, values in differing(everyone).items():
        listed = f"{told(names, values)}."
        if not name.startswith(PREFIX):
            listed = f"{listed} {THE_SAME_DATA if name.startswith(OF_DATA) else THE_SAME_CALL}"
        problems.append(Problem(name, values[me], THE_SAME, listed))
    return problems


def refuse_others(  # noqa: PLR0913, PLR0917
    options: FitOptions,
    model: keras.Model,
    workers: Workers,
    start: Start,
    described: Mapping[str, str],
    names: Sequence[str],
    asked: Mapping[str, str],
) -> None:
    """Refuse workers that differ, and a checkpoint of another fit; all workers call this.

    Args:
        options: the options of the saved fit.
        model: the model to train.
        workers: the workers that train together.
        start: the beginning of the fit, with its checkpoint.
        described: all facts about the fit and its data that must be unchanged: name -> value.
        names: the names of the existing variables.
        asked: arguments that only workers compare: name -> value.

    Raises:
        ConfigurationError: facts differ; it names all differences.
    """
    names = uncounted(names)
    forms = [f"{one.dtype} {list(one.shape)}" for one in model.variables]
    digest = sha256("\n".join([*names, *forms]).encode()).hexdigest()[:12]
    facts = {
        **described,
        **asked,
        "the variables": f"{len(names)}, {digest}",
        variable_of("wire"): process_ring.gradients_wire() or "float32",
        variable_of("sync_every"): _rounds(),
        variable_of("profile_steps"): ", ".join(map(str, options.cuts)),
    }
    refuse_differing(workers, options.job.task, facts)
    own = {name: described.get(name, "") for name in OF_A_WORKER}
    everyone = of_all(workers, {**own, **script_text.code(library_settings.found())}, SETTINGS)
    differing_now = differing(everyone)
    _say_unlike(everyone, [options.job.task.name_of(place) for place in workers.members])
    if start.found:
        left_out = set() if options.compares_layers else {LAYERS, LAYERS_NUMBERS}
        if not {*TRAINING} & start.found.checkpoint.settings.keys():  # from an earlier version
            left_out |= {*TRAINING}
        left_out |= {*OF_A_WORKER, pipelines.ROWS, SHUFFLE} - start.found.checkpoint.settings.keys()
        if start.place.stage != Stage.ALL:  # a script may draw them anew at each start
            left_out |= {DATA_NUMBERS}
        left_out |= {*differing_now}  # the checkpoint has the values of one worker
        if not start.place.step:  # no step was taken, in rounds of whatever length
            left_out |= {variable_of("sync_every")}
        refuse_other_run(start.found, described, names, left_out)


def _say_unlike(everyone: Sequence[Facts], names: Sequence[str]) -> None:
    """Warn that workers train with different code, callbacks or numbers, such as their index."""
    script_text.say_differences(everyone, names)
    found = differing(everyone)
    for what in (NUMBERS, LAYERS_NUMBERS, DATA_NUMBERS):
        if what in found:
            _warn_of_numbers(what, told(names, found[what]))
    if CALLBACKS in found:
        warn_of_callbacks(told(names, found[CALLBACKS]))


@cache
def _warn_of_numbers(what: str, values: str) -> None:
    log.warning(
        "%s differ between workers: %s. All workers train one model together, and each computes "
        "its share of the gradients with its own numbers",
        *(what, values),
    )
