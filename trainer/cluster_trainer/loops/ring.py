"""Finds the ring that connects the workers in a script's own training loop."""

import os

import tensorflow as tf

from cluster_trainer.collectives import local_devices, process_ring
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.names.spellings import variable_of
from cluster_trainer.settings.task import as_started, from_environment


def ring_of_loop(function: str) -> RenewableRing | None:
    """Return the workers' ring; None: there is only this worker.

    Args:
        function: the name of the function that a script has called, for messages.

    Raises:
        ConfigurationError: there are several workers, and no ring sums over them in each step; or
            this worker trains on several devices.
    """
    if from_environment(as_started(os.environ)).num_workers == 1:
        return None
    ring = ring_of(tf.distribute.get_strategy())
    devices = local_devices.strategy()
    if ring is None:
        advice = (
            "It needs the ring of workers, which TRAINER_COLLECTIVES=tensorflow, a strategy of the "
            "script's own and CLUSTER_TRAINER_ENGINE=off rule out. With a strategy, use its "
            "`experimental_distribute_dataset`."
        )
        raise _refused(function, "several workers without a ring", "a ring", advice)
    if devices is not None:
        advice = f"A loop of your own computes on one: set {variable_of('devices')} to one of them."
        number = len(devices.extended.worker_devices)
        raise _refused(function, f"{number} devices of this worker", "one device", advice)
    steps = "auto" if process_ring.are_rounds_open() else process_ring.steps_of_round()
    if steps != 1:
        name = variable_of("sync_every")
        advice = f"A loop of your own sums in each step: unset {name}."
        raise _refused(function, f"{name}={steps}", "1", advice)
    return ring if ring.size_of_all > 1 else None


def _refused(function: str, received: str, accepted: str, advice: str) -> ConfigurationError:
    return ConfigurationError([Problem(f"cluster_trainer.{function}", received, accepted, advice)])
