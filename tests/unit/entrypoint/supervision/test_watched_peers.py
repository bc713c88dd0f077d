"""A verdict of the peer watch ends the command. A failure of the watch does not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from entrypoint.log import Log
from entrypoint.supervision.child.child_process import block_signals
from entrypoint.supervision.peers.beside import Peers, SharedMark
from entrypoint.supervision.run import CommandRunner

def watch(_):
    {watch}

block_signals()
{before}
peers = Peers(number=1, meet=None, watch=watch, serve=lambda *_: None, asked=SharedMark())
runner = CommandRunner(
    command=("sh", "-c", {script!r}), environment={{"PROGRESS_FILE": "", **os.environ}},
    log=Log("worker-0"),
    grace_seconds=5.0, terminal=False, peers=peers, marks=Path("/nowhere/marks"),
)
ended, _ = runner.run(0)
print(ended.reason)
sys.exit(ended.code)
"""
SECONDS = 1
TRAINS = f"sleep {SECONDS}; echo trained"


# The first fork fails, as under a limit of processes. The second one starts the command.
NO_ROOM = """
fork = os.fork

def refuse():
    os.fork = fork
    raise BlockingIOError(11, "no room")

os.fork = refuse
"""


def run(watch: str, script: str = TRAINS, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command whose peers are watched by this code."""
    program = PROGRAM.format(root=str(ROOT), watch=watch, script=script, before=before)
    line = [sys.executable, "-c", program]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.parametrize(
    ("watch", "said"),
    [
        ('raise RuntimeError("no thread")', "exit code 1"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
        ("os._exit(78)", "exit code 78"),
    ],
)
def test_a_watch_that_crashes_does_not_harm_the_command(watch: str, said: str) -> None:
    ended = run(watch)
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (0, "trained"), ended
    (warning,) = [line for line in ended.stderr.splitlines() if " WARNING worker-0 " in line]
    assert "the peers are no longer watched" in warning
    assert said in warning


def test_a_watch_that_finds_nothing_wrong_says_nothing() -> None:
    ended = run('return 0, ""')
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_verdict_ends_the_command_with_its_reason() -> None:
    begin = time.monotonic()
    ended = run('return 75, "worker-1 is gone"', "exec sleep 300")
    assert (ended.returncode, ended.stdout) == (75, "worker-1 is gone\n")
    assert time.monotonic() - begin < 10


def test_a_command_that_ends_well_all_the_same_has_done_its_work() -> None:
    ended = run('time.sleep(0.5); return 75, "worker-1 is gone"', "exit 0")
    assert ended.returncode == 0


def test_a_watch_that_cannot_be_started_does_not_harm_the_command() -> None:
    ended = run('return 0, ""', before=NO_ROOM)
    assert ended.returncode == 0, ended
    assert "WARNING worker-0 the peers cannot be watched: no room" in ended.stderr
