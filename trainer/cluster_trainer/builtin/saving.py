"""Saves the model at the end of a run: the chief writes it, and the other workers wait."""

import logging
import time
from collections.abc import Callable

import keras

from cluster_trainer.builtin.predictions import write_predictions
from cluster_trainer.builtin.run import Completed, Run
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.results import export
from cluster_trainer.results.on_screen.report import Reporter

log = logging.getLogger("trainer")


def save_trained(
    run: Run, completed: Completed, reporter: Reporter, build: Callable[[], keras.Model]
) -> None:
    """Write the trained model and its predictions of test examples; all workers call this.

    All wait until the chief has written, because a worker that exits early would count as lost.

    Args:
        run: the finished run.
        completed: its results.
        reporter: notes that the model is saved.
        build: builds an equal model outside of the strategy.
    """
    reporter.journal.note("saving", "the trained model")
    if run.job.task.is_chief:
        started, folder = time.monotonic(), run.job.config.model_dir or reporter.folder
        is_alone = run.job.task.num_workers == 1
        copy = export.save_copy(run.model, build, completed.weights, folder, is_alone=is_alone)
        log.info("saved the model to %s in %.1f s", folder, time.monotonic() - started)
        write_predictions(copy, run.data, reporter.folder)
    workers_of(run.model.distribute_strategy).gather(0, "fit (the trained model)")
