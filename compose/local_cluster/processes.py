"""Runs other programs to their end."""

from __future__ import annotations

import subprocess
from typing import Any

NO_ANSWER = 124
"""The exit code of a command that reached its time limit, as with `timeout`."""


def answer_of(
    process: subprocess.Popen[bytes], seconds: float | None
) -> subprocess.CompletedProcess[str]:
    """Wait for a process, and return its exit code and its output.

    Args:
        process: it has pipes for its output and its errors.
        seconds: its time limit, after which it is killed and counts as failed; None: no limit.
    """
    line: Any = process.args
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        end(process)
        late = f"no answer within {seconds:g} s"
        return subprocess.CompletedProcess(line, NO_ANSWER, "", late)
    except BaseException:
        end(process)
        raise
    texts = out.decode(errors="replace"), err.decode(errors="replace")
    return subprocess.CompletedProcess(line, process.returncode, *texts)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process. Processes that it has started may keep its pipes open; nobody reads them."""
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
    process.wait()
