"""The command: its environment, and becoming it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

from entrypoint.errors import (
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    ConfigurationError,
    Problem,
    say,
)
from entrypoint.settings.environ import Environ
from entrypoint.settings.options import Options

TRAINER_ENDS_EARLIER_SECONDS = 2
"""Before it would be killed, so that it can still say how it ended."""

LONGEST_VARIABLE = 131_071
"""Bytes of `NAME=value` that Linux gives to a program (MAX_ARG_STRLEN, less the final NUL)."""


def child_environment(environ: Environ, tf_config: str | None) -> dict[str, str]:
    """Return the command's variables: all that were read, and TF_CONFIG only if there is one.

    Raises ConfigurationError for a value from a file that is longer than Linux can hand over.
    """
    variables = {name: value.text for name, value in environ.values.items()}
    variables.pop("TF_CONFIG", None)
    variables.pop("CLUSTER_TOKEN", None)  # the gate's alone
    if tf_config is not None:
        variables["TF_CONFIG"] = tf_config
    too_long = [
        Problem(environ.label(name), f"{len(text)} characters", f"{LONGEST_VARIABLE} bytes at most")
        for name, text in variables.items()
        if len(os.fsencode(f"{name}={text}")) > LONGEST_VARIABLE
    ]
    if too_long:
        raise ConfigurationError(too_long)
    return variables


def trainer_settings(environ: Environ, options: Options) -> dict[str, str]:
    """Return what our options mean for the trainer; what is set as TRAINER_ variable wins."""
    settings = {}
    if options.gpus_per_worker is not None:
        settings["TRAINER_GPUS_PER_WORKER"] = str(options.gpus_per_worker)
    if "STARTUP_TIMEOUT" in environ.values:
        settings["TRAINER_STARTUP_TIMEOUT_SECONDS"] = str(options.startup_timeout_seconds)
    if "STOP_GRACE_SECONDS" in environ.values:
        seconds = max(1, int(options.stop_grace_seconds) - TRAINER_ENDS_EARLIER_SECONDS)
        settings["TRAINER_STOP_SECONDS"] = str(seconds)
    return settings


def become(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command in place of this process; return an exit code only if it cannot start."""
    # Python ignores these two, and a program that is exec'd would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    if not command[0]:
        say("cluster-trainer: the command is empty. Leave it out to run the trainer.")
        return EXIT_NOT_FOUND
    try:
        os.execvpe(command[0], list(command), environment)  # noqa: S606 -- the user's own command
    except (FileNotFoundError, NotADirectoryError):
        return _not_found(command[0])
    except OSError as error:
        say(f"cluster-trainer: cannot run {command[0]}: {error.strerror}.")
        return EXIT_NOT_EXECUTABLE


def _not_found(name: str) -> int:
    """Say what is missing: the command, or the interpreter that its first line names."""
    if "/" in name and os.path.exists(name):  # noqa: PTH110 -- pathlib is slow to import
        say(f"cluster-trainer: cannot run {name}: the interpreter of its first line is missing.")
    else:
        say(f"cluster-trainer: {name}: no such command.")
    return EXIT_NOT_FOUND
