"""Starts other programs, and waits for their end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakSet

NO_ANSWER = 124
"""The exit code of a command that reached its time limit, as with `timeout`."""

_started: WeakSet[subprocess.Popen[bytes]] = WeakSet()
_is_interrupted = False
_one_at_a_time = threading.Lock()


def start(line: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 -- Popen's
    """Start a program in a new session, which a terminal's Ctrl-C does not reach.

    Raises:
        FileNotFoundError: there is no such program.
        KeyboardInterrupt: `interrupt` was called.
    """
    with _one_at_a_time:
        if _is_interrupted:
            raise KeyboardInterrupt
        process = subprocess.Popen(line, start_new_session=True, **options)
        _started.add(process)
        return process


def interrupt() -> None:
    """Kill all programs that still run, and start no others: threads may wait for them."""
    global _is_interrupted  # noqa: PLW0603 -- of the whole process, which is about to end
    with _one_at_a_time:
        _is_interrupted = True
        for process in [*_started]:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and those that it has started, such as the ssh of `docker --host ssh://…`.

    It does nothing if the process's end is known.
    """
    if process.returncode is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()


def answer_of(
    process: subprocess.Popen[bytes], seconds: float | None
) -> subprocess.CompletedProcess[str]:
    """Wait for a process, and return its exit code and its output.

    Args:
        process: it has pipes for its output and its errors.
        seconds: its time limit, after which it is killed and counts as failed, with the output so
            far; None: no limit.
    """
    line: Any = process.args
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        end(process)
        so_far = (error.output or b"").decode(errors="replace")
        late = f"no answer within {seconds:g} s"
        return subprocess.CompletedProcess(line, NO_ANSWER, so_far, late)
    except BaseException:
        end(process)
        raise
    texts = out.decode(errors="replace"), err.decode(errors="replace")
    return subprocess.CompletedProcess(line, process.returncode, *texts)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process. Those in other sessions may keep its pipes open; nobody reads them."""
    kill(process)
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
    process.wait()
