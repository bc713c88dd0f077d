"""FAILURE_FILE: why a worker failed, in a few lines that others can show."""

from __future__ import annotations

from collections.abc import Sequence

from entrypoint.log import Log

LONGEST_CHARACTERS = 1024
"""SageMaker shows so many of its file."""


def write_failure(path: str | None, log: Log, reason: str, last_lines: Sequence[str] = ()) -> None:
    """Write the reason, then as many of the command's last lines as fit; never raises."""
    if path is None:
        return
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123
            file.write(failure_text(f"{log.worker}: {reason}", last_lines))
    except OSError as error:
        log.warning(f"FAILURE_FILE {path} cannot be written: {error.strerror}")


def failure_text(reason: str, last_lines: Sequence[str]) -> str:
    """Return at most LONGEST_CHARACTERS: the reason, then the newest lines that fit, whole."""
    text = reason[: LONGEST_CHARACTERS - 1] + "\n"
    kept: list[str] = []
    left = LONGEST_CHARACTERS - len(text)
    for line in reversed(last_lines):
        left -= len(line) + 1
        if left < 0:
            break
        kept.insert(0, line)
    return text + "".join(f"{line}\n" for line in kept)
