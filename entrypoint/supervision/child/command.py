"""Replaces this process by the command, or reports why it cannot start."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from entrypoint.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, say


def become(
    command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> int:
    """Run the command in place of this process; return an exit code only if it cannot start.

    It runs in `folder`, otherwise in this process's working directory.
    """
    if folder:
        try:
            os.chdir(folder)
        except OSError as error:
            say(f"cluster-trainer: cannot run {command[0]} in {folder}: {error.strerror}.")
            return EXIT_NOT_EXECUTABLE
    # Python ignores these two signals, and a program started by exec would inherit that.
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
    """Report what is missing: the command, or the interpreter in its first line."""
    if "/" in name and os.path.exists(name):  # noqa: PTH110 -- never raises
        say(f"cluster-trainer: cannot run {name}: the interpreter of its first line is missing.")
    else:
        say(f"cluster-trainer: {name}: no such command.")
    return EXIT_NOT_FOUND
