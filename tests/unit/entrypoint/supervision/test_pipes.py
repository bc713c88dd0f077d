"""A command's last output reaches a slow reader, or a warning says how much may be missing."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint.log import Log
from entrypoint.supervision.output import pipes, remaining_output
from entrypoint.supervision.output.pipes import Output
from harness.waiting import wait_until

BYTES = 100_000
"""More than the pipe to the reader holds, and less than both pipes."""


def test_a_reader_that_stalls_gets_the_last_lines(
    entrypoint: tuple[str, ...], tmp_path: Path
) -> None:
    ended = tmp_path / "ended"
    started = subprocess.Popen(
        [*entrypoint, "sh", "-c", f"head -c {BYTES} /dev/zero; echo the end; touch {ended}"],
        env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
    )
    wait_until(ended.exists, 10, "the command's end", logs=str)
    time.sleep(remaining_output.FLUSH_SECONDS + 1)  # the reader's stall, which is what is tested
    assert started.communicate(timeout=30)[0] == bytes(BYTES) + b"the end\n"
    assert started.returncode == 0


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Output, int]]:
    """Return an output to a pipe, whose reading end nobody reads, and the command's writing end."""
    reading, writing = os.pipe()
    monkeypatch.setattr(pipes, "DEFAULT_LEVELS", {writing: "INFO", pipes.STDERR: "WARNING"})
    monkeypatch.setattr(pipes, "STDOUT", writing)
    monkeypatch.setattr(remaining_output, "FLUSH_SECONDS", 0.2)
    output = Output(Log("worker-0"))
    commands = os.dup(output.streams[writing].writing)
    assert output.start()
    yield output, commands
    os.close(reading)


def test_what_a_reader_does_not_take_is_counted(
    output: tuple[Output, int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remaining_output, "STALLED_SECONDS", 0.5)
    forwarded, commands = output
    os.write(commands, b"x" * 65_536)
    threading.Timer(0.1, lambda: (os.write(commands, b"y" * 30_000), os.close(commands))).start()
    forwarded.finish()
    assert "the last 30000 bytes of the command's output may be missing" in capfd.readouterr().err


def test_a_pipe_that_stays_open_without_data_ends_the_wait(
    output: tuple[Output, int], capfd: pytest.CaptureFixture[str]
) -> None:
    forwarded, commands = output
    os.write(commands, b"all\n")
    before = time.monotonic()
    forwarded.finish()
    assert time.monotonic() - before < 2
    assert capfd.readouterr().err == ""
    os.close(commands)
