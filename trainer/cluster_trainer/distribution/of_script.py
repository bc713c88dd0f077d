"""Chooses the devices of a script's process that train."""

import logging
import sys
from collections.abc import Mapping

import tensorflow as tf

from cluster_trainer.collectives import process_ring
from cluster_trainer.distribution.strategy import set_devices
from cluster_trainer.problems import ConfigurationError, ExitCode, Problem, render
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.names import devices
from cluster_trainer.settings.names.spellings import shown_name, variable_of
from cluster_trainer.settings.task import as_started, from_environment

SETTINGS = ("devices", "logical_cpus", "sync_every")
log = logging.getLogger("trainer")


def devices_of_script(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the devices that train in a script's process; log them if several do.

    With several workers, the result is empty if no ring sums over them. It is also empty if they
    have several devices each, but average weights in rounds: each then trains on one device.

    Raises:
        ConfigurationError: the process lacks CPU devices that the settings name.
    """
    is_alone = from_environment(as_started(environ)).num_workers == 1
    if not is_alone and not process_ring.is_wanted():
        return ()
    config = _settings(environ)
    names = devices.numbered("GPU", len(tf.config.list_logical_devices("GPU")))
    if config.logical_cpus or (config.devices and devices.are_cpus(config.devices)):
        cpus = devices.numbered("CPU", config.logical_cpus or 1)
        names = tuple(config.devices.split(",")) if config.devices else cpus
        _refuse_missing(names)
    if len(names) > 1 and config.sync_every != 1 and not is_alone:
        log.warning(
            "%s: each worker trains on one of its %d devices",
            variable_of("sync_every"),
            len(names),
        )
        return ()
    if len(names) > 1:
        log.info(
            "up: %d devices of this machine (%s) train as one, each on its share of a batch; "
            "%s=%s trains on one",
            len(names),
            ", ".join(names),
            variable_of("devices"),
            names[0],
        )
    return names


def _settings(environ: Mapping[str, str]) -> TrainerConfig:
    given = {name: environ.get(name, "").strip() for name in map(variable_of, SETTINGS)}
    return TrainerConfig.read({name: text for name, text in given.items() if text}, ())


def _refuse_missing(names: tuple[str, ...]) -> None:
    there = devices.numbered("CPU", len(tf.config.list_logical_devices("CPU")))
    if not {*names} <= {*there}:
        advice = "The script has divided the CPU itself, or has used TensorFlow before."
        accepted = " ".join(there)
        raise ConfigurationError(
            [Problem(shown_name("logical_cpus"), " ".join(names), accepted, advice)]
        )


def set_devices_of_script(environ: Mapping[str, str]) -> None:
    """Restrict a script's TensorFlow to the devices in the settings, before it initialises them.

    Raises:
        SystemExit: a device does not exist; code 78, after a message.
    """
    try:
        config = _settings(environ)
        set_devices(config.devices, config.logical_cpus)
    except ConfigurationError as error:
        print(render(error.problems), file=sys.stderr)  # noqa: T201
        raise SystemExit(ExitCode.BAD_CONFIGURATION) from error
