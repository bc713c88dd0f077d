"""Refuses settings with which workers would train alone, or without a ring."""

from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.names import devices
from cluster_trainer.settings.names.spellings import shown_name


def refuse_strategy_for_one(config: TrainerConfig, num_workers: int) -> None:
    """Refuse a strategy that would leave the workers of a cluster on their own.

    Raises:
        ConfigurationError: there are several workers, and the strategy is for one.
    """
    if num_workers > 1 and config.strategy not in ("auto", "multiworker"):
        advice = f"The cluster has {num_workers} workers; each would train by itself."
        name, accepted = shown_name("strategy"), "auto or multiworker"
        raise ConfigurationError([Problem(name, config.strategy, accepted, advice)])


def refuse_fewer_without_ring(config: TrainerConfig) -> None:
    """Refuse settings that rule out a ring: only a ring continues with fewer workers (MIN_WORKERS).

    Raises:
        ConfigurationError: there are such settings; it names each of them.
    """
    advice = "MIN_WORKERS is less than all workers, and only a ring continues with fewer."
    problems = [
        Problem(shown_name(name), str(getattr(config, name)), accepted, advice)
        for name, accepted in _without_ring(config).items()
    ]
    if problems:
        raise ConfigurationError(problems)


def may_be_ring(strategy: str, collectives: str) -> bool:
    """Tell whether workers with one CPU each sum over a ring, by these two settings."""
    return collectives == "ring" or collectives == strategy == "auto"


def _without_ring(config: TrainerConfig) -> dict[str, str]:
    """Return the settings that rule out a ring: name -> accepted values."""
    found = {}
    if not may_be_ring(config.strategy, config.collectives):
        if config.collectives == "auto":
            found["strategy"] = "auto"
        else:
            found["collectives"] = "auto or ring" if config.strategy == "auto" else "ring"
    if config.devices is not None:
        if "," in config.devices or not devices.are_cpus(config.devices):
            found["devices"] = "one CPU"
    elif config.logical_cpus is not None:
        if config.logical_cpus > 1:
            found["logical_cpus"] = "1"
    elif config.gpus_per_worker:
        found["gpus_per_worker"] = "0, or TRAINER_DEVICES=CPU:0"
    return found
