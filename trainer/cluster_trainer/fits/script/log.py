"""Starts the trainer's log in a script: its lines have a time, a level and the worker's name."""

import logging
from collections.abc import Mapping

from cluster_trainer.problems import ConfigurationError
from cluster_trainer.results.on_screen.report import start_log
from cluster_trainer.settings.task import from_environment
from cluster_trainer.settings.view import read_view

log = logging.getLogger("trainer")


def begin_log(environ: Mapping[str, str]) -> None:
    """Start the log, unless it was started, or the script has configured a logger of this name.

    Args:
        environ: the environment, with TF_CONFIG and the log's variables. With a TF_CONFIG that is
            not acceptable, nothing is done; it is refused later.
    """
    if log.handlers:
        return
    try:
        task = from_environment(environ)
    except ConfigurationError:
        return
    start_log(task.name, view=read_view(environ, is_chief=task.is_chief))
