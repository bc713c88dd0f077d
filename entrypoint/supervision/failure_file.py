"""FAILURE_FILE: the reason why a worker failed, in a few lines for other programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from entrypoint.errors import write_all
from entrypoint.log import Log

LONGEST_CHARACTERS = 1024
"""SageMaker shows this many characters of the file."""


def write_failure(path: str | None, log: Log, reason: str, last_lines: Sequence[str] = ()) -> None:
    """Write the reason, then as many of the command's last lines as fit; never raises."""
    if path is None:
        return
    text = failure_text(f"{log.worker}: {reason}", last_lines)
    try:
        _write(path, text.encode(errors="backslashreplace"))
    except OSError as error:
        log.warning(f"FAILURE_FILE {path} cannot be written: {error.strerror}")


def _write(path: str, content: bytes) -> None:
    """Write a file. Fails at once for a pipe that nobody reads, instead of waiting for a reader."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o666)
    try:
        write_all(opened, content)
    finally:
        os.close(opened)


def remove_failure(path: str | None, log: Log) -> None:
    """Remove the file of an earlier failure; never raises."""
    if path is None:
        return
    file = Path(path)
    try:
        # A link is kept: it may be the user's, and lead to /dev/stdout or to a log.
        if file.is_file() and file.stat().st_size and not file.is_symlink():
            _remove(file)
    except OSError as error:
        log.warning(f"FAILURE_FILE {path} cannot be removed: {error.strerror}")


def _remove(file: Path) -> None:
    """Remove a file; empty it if it is a mount, such as Kubernetes' /dev/termination-log."""
    try:
        file.unlink()
    except OSError:
        file.write_bytes(b"")


def failure_text(reason: str, last_lines: Sequence[str]) -> str:
    """Return at most LONGEST_CHARACTERS: the reason, then the newest whole lines that fit."""
    text = reason[: LONGEST_CHARACTERS - 1] + "\n"
    kept: list[str] = []
    left = LONGEST_CHARACTERS - len(text)
    for line in reversed(last_lines):
        left -= len(line) + 1
        if left < 0:
            break
        kept.insert(0, line)
    return text + "".join(f"{line}\n" for line in kept)
