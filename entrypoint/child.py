"""The command that takes this process's place: its environment, and starting it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

from entrypoint.environ import Environ
from entrypoint.errors import (
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    ConfigurationError,
    Problem,
    say,
)

LONGEST_VARIABLE = 131_071
"""Bytes of `NAME=value` that Linux gives to a program (MAX_ARG_STRLEN, less the final NUL)."""


def child_environment(environ: Environ, tf_config: str | None) -> dict[str, str]:
    """Return the command's variables: all that were read, and TF_CONFIG only if there is one.

    Raises ConfigurationError for a value from a file that is longer than Linux can hand over.
    """
    variables = {name: value.text for name, value in environ.values.items()}
    variables.pop("TF_CONFIG", None)
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
