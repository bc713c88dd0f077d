"""The log of a script: each line of ours has a time, a level and the worker's name."""

import logging
from collections.abc import Mapping

from cluster_trainer.problems import ConfigurationError
from cluster_trainer.results.on_screen.report import start_log
from cluster_trainer.settings.task import from_environment
from cluster_trainer.settings.view import read_view

log = logging.getLogger("trainer")


def begin_log(environ: Mapping[str, str]) -> None:
    """Start the log, unless it has started, or the script has a logger of this name.

    Args:
        environ: TF_CONFIG, and what the log looks like. A TF_CONFIG that is refused later is no
            reason to fail here.
    """
    if log.handlers:
        return
    try:
        task = from_environment(environ)
    except ConfigurationError:
        return
    start_log(task.name, view=read_view(environ, is_chief=task.is_chief))
