"""Reads the variables of a script that calls Keras's own `fit`, on TensorFlow or on JAX."""

import logging
from collections.abc import Collection, Mapping
from tempfile import gettempdir

from cluster_trainer.problems import ConfigurationError
from cluster_trainer.results.on_screen.report import start_log
from cluster_trainer.settings.job import Job, read_job
from cluster_trainer.settings.names.spellings import variable_of

FOLDERS = frozenset({"data_dir", "model_dir"})
"""Settings that a scheduler sets for other programs."""
log = logging.getLogger("trainer")


def read_variables(environ: Mapping[str, str], unheeded: Collection[str]) -> Job:
    """Read the variables, start the log, and name those that have no effect.

    Without TRAINER_RUN_DIR and a writable default, nothing is saved.

    Args:
        environ: the environment, with TRAINER_ variables.
        unheeded: the names of settings that have no effect on the script.

    Raises:
        ConfigurationError: a variable is not acceptable.
    """
    has_folder = True
    try:
        job = read_job(environ, [])
    except ConfigurationError:
        if environ.get("TRAINER_RUN_DIR"):
            raise
        job = read_job(environ, [], {"run_dir": gettempdir(), "checkpoint_steps": 0})
        has_folder = False
    start_log(job.task.name, view=job.view)
    if not has_folder:
        log.warning("/runs cannot be written, so no checkpoints are kept (TRAINER_RUN_DIR)")
    if unused := unused_variables(environ, unheeded):
        log.warning(
            "Keras's own fit ignores %s: the script itself decides these", ", ".join(unused)
        )
    return job


def unused_variables(environ: Mapping[str, str], overridden: Collection[str]) -> list[str]:
    """Return the variables that are set, although a script overrides them."""
    variables = sorted(map(variable_of, overridden))
    return [variable for variable in variables if environ.get(variable, "").strip()]
