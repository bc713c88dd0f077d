"""Computes the learning rate of a run, scaled with the global batch and reached by a warm-up.

The rules come from these papers:

- Linear scaling, and the warm-up from the unscaled rate: Goyal et al., "Accurate, Large Minibatch
  SGD" (2017), arXiv 1706.02677, sections 2.1 and 2.2.
- Square-root scaling: Krizhevsky, "One weird trick" (2014), arXiv 1404.5997, section 5; for Adam,
  Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms" (2022), arXiv
  2205.10287.
"""

import math
from dataclasses import dataclass

from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.names.spellings import shown_name

AUTO_WARMUP_EPOCHS = 5
AUTO_WARMUP_SHARE = 10  # of the run's steps: a tenth


@dataclass(frozen=True)
class LearningRate:
    """The parameters of the schedule.

    Attributes:
        start: the rate at step 0; without a warm-up it is `peak`.
        peak: the rate after the warm-up, from which the schedule continues.
        warmup_steps: the number of steps of the linear warm-up.
    """

    start: float
    peak: float
    warmup_steps: int

    def __str__(self) -> str:
        if not self.warmup_steps:
            return f"{self.peak:g}"
        return f"{self.peak:g} after a warm-up of {self.warmup_steps} steps from {self.start:g}"


def learning_rate_of(
    config: TrainerConfig, steps: int, global_batch_size: int | None
) -> LearningRate:
    """Return the learning rates of a run of `steps` steps.

    They depend on the global batch size, and not on the number of workers. The warm-up begins with
    the unscaled rate, or with 0 if that is not lower than the peak.

    Raises:
        ConfigurationError: the warm-up takes the whole run, or longer; or the rate is to be scaled
            with a batch of unknown size.
    """
    peak = config.learning_rate * _factor(config, global_batch_size)
    is_scaled_up = peak > config.learning_rate
    if config.warmup_steps == "auto":
        by_epochs = AUTO_WARMUP_EPOCHS * steps // config.epochs
        warmup_steps = min(by_epochs, steps // AUTO_WARMUP_SHARE) if is_scaled_up else 0
    else:
        warmup_steps = config.warmup_steps
    if warmup_steps >= steps:
        name, received = shown_name("warmup_steps"), str(warmup_steps)
        accepted = f"auto or fewer than the run's {steps} steps"
        raise ConfigurationError([Problem(name, received, accepted)])
    if not warmup_steps:
        return LearningRate(peak, peak, 0)
    return LearningRate(config.learning_rate if is_scaled_up else 0.0, peak, warmup_steps)


def _factor(config: TrainerConfig, global_batch_size: int | None) -> float:
    if config.lr_scaling == "none":
        return 1.0
    if global_batch_size is None:
        name, accepted = shown_name("lr_scaling"), "none, because the data make their own batches"
        raise ConfigurationError([Problem(name, config.lr_scaling, accepted)])
    ratio = global_batch_size / config.lr_scaling_base
    return {"linear": ratio, "sqrt": math.sqrt(ratio)}[config.lr_scaling]
