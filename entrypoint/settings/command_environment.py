"""The variables of the command."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from entrypoint.errors import Problem, raise_any
from entrypoint.settings.environ import Environ
from entrypoint.settings.options import Options
from entrypoint.settings.unrelated_variables import exceptions_for

TRAINER_ENDS_EARLIER_SECONDS = 2
"""The trainer stops this much earlier than the kill, so that it can still report its end."""

LOG_LEVEL, LEVEL_OF_IMAGE = "TF_CPP_MIN_LOG_LEVEL", "1"

HASH_SEED, THE_SAME_HASHES = "PYTHONHASHSEED", "0"
"""Python's variable for the order of sets of strings, and the value that all commands get.

Without it, Python orders such sets anew in each process. A table of labels that is made from a set
would number them differently on each worker, and after a restart. The random order protects servers
from strangers who send colliding keys. A training program gets none.
"""

LONGEST_VARIABLE = 131_071
"""The number of bytes of `NAME=value` that Linux passes to a program (MAX_ARG_STRLEN, less the
NUL)."""


def command_environment(
    environ: Environ, tf_config: str | None, hosts: Sequence[str] = ()
) -> dict[str, str]:
    """Return the command's variables; TF_CONFIG only if there is a cluster.

    Sets of strings have the same order in all of its processes, unless PYTHONHASHSEED is set.

    `hosts` are the workers' hosts, which programs reach without a proxy. Raises ConfigurationError
    if a value from a file is longer than Linux can pass on.
    """
    variables = environ.texts()
    variables[HASH_SEED] = variables.get(HASH_SEED) or THE_SAME_HASHES  # to Python, "" is unset
    if tf_config is not None:
        variables["TF_CONFIG"] = tf_config
        variables |= _without_pages_of_warnings(variables)
        variables |= exceptions_for(variables, hosts)
    raise_any(
        Problem(environ.label(name), f"{length} bytes", f"{most} bytes at most")
        for name, text in variables.items()
        if (most := LONGEST_VARIABLE - len(os.fsencode(f"{name}=")))
        < (length := len(os.fsencode(text)))
    )
    return variables


def _without_pages_of_warnings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the log level that hides TensorFlow's warnings about a failed all-reduce of a ring.

    TensorFlow prints them twice, with Python tracebacks, whenever a worker is lost. A level that
    the user has set is kept.
    """
    is_by_tensorflow = variables.get("TRAINER_COLLECTIVES", "").strip() == "tensorflow"
    is_the_images = variables.get(LOG_LEVEL) == LEVEL_OF_IMAGE
    return {LOG_LEVEL: "2"} if is_the_images and not is_by_tensorflow else {}


def trainer_settings(environ: Environ, options: Options) -> dict[str, str]:
    """Return the trainer's variables for our options; a TRAINER_ variable that is set wins."""
    settings = {}
    if options.gpus_per_worker is not None:
        settings["TRAINER_GPUS_PER_WORKER"] = str(options.gpus_per_worker)
    if environ.given("STARTUP_TIMEOUT"):
        settings["TRAINER_STARTUP_TIMEOUT_SECONDS"] = str(options.startup_timeout_seconds)
    if environ.given("STOP_GRACE_SECONDS"):
        seconds = max(1, int(options.stop_grace_seconds) - TRAINER_ENDS_EARLIER_SECONDS)
        settings["TRAINER_STOP_SECONDS"] = str(seconds)
    return settings
