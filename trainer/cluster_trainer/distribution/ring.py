"""Forms the ring of this worker on connections that the entrypoint makes."""

import atexit
import logging
import os
import sys
from collections.abc import Mapping
from functools import partial

import tensorflow as tf

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.neighbours import (
    EX_CONFIG,
    VARIABLE,
    NeighboursError,
    NotTheEntrypointsError,
    join,
)
from cluster_trainer.collectives.newcomers import Newcomers
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.ring import Ring
from cluster_trainer.private import tensorflow_names
from cluster_trainer.problems import ConfigurationError, PeerLostError, Problem, Told
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.names.spellings import shown_name, variable_of
from cluster_trainer.settings.task import as_started, comes_late, from_environment, may_be_fewer

SWITCH_SECONDS = 0.0005
log = logging.getLogger("trainer")


class NoEntrypointError(ConfigurationError):
    """No entrypoint connects this process with others: another program has started it."""


def form(
    environ: Mapping[str, str],
    silence_seconds: int,
    most: int | None = None,
    *,
    is_late: bool = False,
) -> RenewableRing:
    """Meet the other workers, and return the ring; `renew` of the ring does so again.

    Args:
        environ: the variables with which the entrypoint has started this command.
        silence_seconds: the time after which a silent worker counts as lost.
        most: the number of all workers, if fewer may continue; None: all are needed.
        is_late: whether the others already train. With `most`, they are met when the ring is first
            used, and not here.

    Raises:
        PeerLostError: a neighbour has not come.
        NoEntrypointError: no entrypoint makes connections for this process.
        ConfigurationError: the entrypoint cannot make the connections.
    """
    connect = partial(_meet, environ, silence_seconds)
    comes_late = is_late and most is not None
    ring = RenewableRing(connect, most, comes_late=comes_late, looks=Newcomers())
    # Otherwise a computing Python thread would hold the GIL for 5 ms at a time.
    sys.setswitchinterval(SWITCH_SECONDS)
    os.register_at_fork(after_in_child=lambda: _forget(ring))
    atexit.register(ring.close)
    return ring


def _meet(environ: Mapping[str, str], silence_seconds: int) -> Ring:
    """Return a ring on new connections from the entrypoint; see `form`."""
    try:
        neighbours = join(environ)
    except NotTheEntrypointsError as error:
        raise NoEntrypointError(_refused(str(error)).problems) from error
    except NeighboursError as error:
        if error.code == EX_CONFIG:
            raise ConfigurationError(_told(str(error))) from error
        raise PeerLostError(str(error)) from error
    if neighbours is None:
        advice = f"{VARIABLE} is not set: start the command by the image's entrypoint."
        raise NoEntrypointError(_refused(advice).problems)
    return Ring(
        neighbours.rank,
        neighbours.size,
        neighbours.generation,
        neighbours.left,
        neighbours.right,
        time_limit_seconds=silence_seconds,
        members=neighbours.members,
    )


def _forget(ring: RenewableRing) -> None:
    """Detach a forked process from the ring: it would write into its parent's connections."""
    process_ring.use(None)
    ring.forget()


def offer_to_script(environ: Mapping[str, str]) -> None:
    """Let a script's models use the ring, unless the script creates a strategy for several workers.

    `environ` is the environment in which the entrypoint has started the script.
    """
    if VARIABLE in environ:
        process_ring.offer(lambda: _form_for_script(environ))


def _form_for_script(environ: Mapping[str, str]) -> RenewableRing | None:
    if tensorflow_names.has_cluster():
        log.info("the script's MultiWorkerMirroredStrategy sums over TensorFlow's cluster")
        return None
    must_be_a_ring = environ.get("TRAINER_COLLECTIVES", "").strip() == "ring"
    config = _settings_of_ring(environ)
    heed(config)
    try:
        count = from_environment(as_started(environ)).num_workers
        most = count if may_be_fewer(environ, count) else None
        ring = form(environ, config.silence_seconds, most, is_late=comes_late(environ))
    except NoEntrypointError as error:
        if must_be_a_ring:
            raise
        log.warning("this process trains alone: %s", "; ".join(map(str, error.problems)))
        return None
    if ring.is_met:
        log.info("up: ring of %d workers, %s", ring.size, _where())
    say_rounds(config)
    return ring


def _where() -> str:
    if not tf.config.get_visible_devices("GPU"):
        return "on the CPU"
    return (
        "whose sums go through the CPU; make a MultiWorkerMirroredStrategy for sums between GPUs "
        "by NCCL"
    )


def heed(config: TrainerConfig) -> None:
    """Apply the settings for the ring's sums: their number format, and the length of rounds."""
    process_ring.send_gradients_as(config.wire)
    if config.sync_every == "auto":
        process_ring.let_rounds_be_chosen()
    else:
        process_ring.let_rounds_have(config.sync_every)


def say_rounds(config: TrainerConfig) -> None:
    """Log if the workers average weights instead of summing gradients."""
    if config.sync_every == "auto":
        log.info(
            "%s=auto: the first seconds measure how long sums take",
            variable_of("sync_every"),
        )
    elif config.sync_every > 1:
        log.info(
            "each worker steps by itself, weights are averaged every %d steps (%s)",
            config.sync_every,
            variable_of("sync_every"),
        )


def _settings_of_ring(environ: Mapping[str, str]) -> TrainerConfig:
    """Read the settings of a script's ring; a `fit` reads all settings."""
    names = map(variable_of, ("wire", "sync_every", "silence_seconds"))
    given = {name: environ.get(name, "").strip() for name in names}
    return TrainerConfig.read({name: text for name, text in given.items() if text}, ())


def warn_of_all_workers() -> None:
    """Warn that MIN_WORKERS has no effect without a ring."""
    log.warning(
        "MIN_WORKERS has no effect: TensorFlow's collectives sum, and only a ring continues with "
        "fewer workers (TRAINER_COLLECTIVES, docs/explanation/survival.md)"
    )


def refuse_devices(devices: tuple[str, ...]) -> None:
    """Refuse devices that a ring cannot connect.

    Raises:
        ConfigurationError: this worker trains on several devices, or on a GPU.
    """
    if len(devices) > 1 or not devices[0].startswith("CPU"):
        advice = f"This worker trains on {', '.join(devices)}; a ring connects workers of one CPU."
        raise _refused(advice)


def _told(text: str) -> list[Problem]:
    """Return the problems in the entrypoint's message, which has one in each indented line."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    return [Told("the cluster", "", "", line) for line in lines or [text]]


def _refused(advice: str) -> ConfigurationError:
    return ConfigurationError([Problem(shown_name("collectives"), "ring", "tensorflow", advice)])
