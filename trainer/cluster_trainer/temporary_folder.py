"""Checks for a folder for temporary files, without which TensorFlow cannot be imported."""

import os
import tempfile
from collections.abc import Mapping

from cluster_trainer.pod import is_in_pod
from cluster_trainer.problems import ConfigurationError, Problem

VARIABLE = "TMPDIR"


def refuse_no_temporary_folder(environ: Mapping[str, str]) -> None:
    """Refuse a container without a folder for temporary files, such as one with a read-only root.

    Raises:
        ConfigurationError: none of the folders that Python tries can be written.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        who = f"user {os.getuid()}:{os.getgid()}"
        mount = "an emptyDir there" if is_in_pod() else "one: --tmpfs /tmp"
        advice = f"Neither /tmp nor the working directory can be written. Mount {mount}."
        accepted = f"a folder for temporary files that {who} can write"
        problem = Problem(VARIABLE, environ.get(VARIABLE, ""), accepted, advice)
        raise ConfigurationError([problem]) from None
