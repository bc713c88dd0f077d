"""A data set as the arguments of Keras's `fit`."""

from typing import Any

from cluster_trainer.data import augment
from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.data.plan import Plan, as_arrays
from cluster_trainer.data.rows import ExampleRows
from cluster_trainer.settings.config import TrainerConfig


def fit_arguments(data: DataSet, config: TrainerConfig, plan: Plan) -> dict[str, Any]:
    """Return what `fit` is to be called with: the data, and how they are cut."""
    arguments: dict[str, Any] = {"steps_per_epoch": config.steps_per_epoch}
    if isinstance(data.train, Examples):
        assert plan.global_batch_size  # noqa: S101  examples have one
        batch, augmentation = plan.global_batch_size, augment.BY_NAME[config.augment]
        arguments["x"] = ExampleRows(data.train, batch, config.seed, augmentation)
        if data.test is not None:
            arguments["validation_data"] = ExampleRows(data.test, batch)
        return arguments
    if (arrays := as_arrays(data.train)) is not None:
        names = ("x", "y", "sample_weight")
        arguments |= dict(zip(names, arrays, strict=False))
    else:
        arguments["x"] = data.train
    return arguments | {"batch_size": plan.global_batch_size, "validation_data": data.test}
