"""Identifies a process by its number and its start: numbers are reused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ENDED = "Z"
"""The state of a process that has ended, if its parent has not waited for it (a zombie)."""
STATE, START = 0, 19
"""Columns of /proc/PID/stat, counted from the state (proc(5))."""


def identity_of(process: int) -> str:
    """Return a process's identity, one word; "" if it has ended.

    Without a known start, which some systems' `ps` does not print, the number alone is returned.
    """
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:  # another user's
        pass
    fields = _stat(process)
    if fields and fields[STATE] == ENDED:
        return ""
    start = fields[START] if fields else start_by_ps(process)
    return f"{process}@{start}" if start else str(process)


def has_ended(identity: str) -> bool:
    """Tell whether a process has ended. An older version has kept its number alone."""
    number, at, _ = identity.partition("@")
    now = identity_of(int(number))
    return now != identity if at and "@" in now else not now


def _stat(process: int) -> list[str]:
    """Return the columns of /proc/PID/stat from the state on; empty without /proc, as on macOS."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def start_by_ps(process: int) -> str:
    """Return the time at which a process started, as one word; "" if it is unknown."""
    try:
        ended = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(process)],
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return "_".join(ended.stdout.split()) if not ended.returncode else ""
