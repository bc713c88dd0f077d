"""The reason that is given for a child's end, such as memory that ran out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
# A child that raises the counter of OOM kills, in a folder that replaces the cgroup, and ends.
PROGRAM = """
import os, signal, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from entrypoint.log import Log
from entrypoint.supervision.child import child_process
from entrypoint.supervision.child.waiter import Waiter
from entrypoint.supervision.child.out_of_memory import OomKills

cgroup = Path({cgroup!r})
child_process.OomKills = lambda: OomKills(cgroup)

def run():
    for name, text in {after!r}.items():
        (cgroup / name).write_text(text)
    {end}

child_process.block_signals()
print(Waiter(child_process.ChildProcess(run), "the command", 0.0, Log("worker-0")).wait().reason)
"""
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
BEFORE = {"memory.events": "oom 0\noom_kill 4\n", "memory.max": "104857600\n"}
AFTER = {"memory.events": "oom 1\noom_kill 5\n"}
AFTER_A_KILL = "after a process here was killed"
RAN_OUT = "out of memory, this container's limit is 100 MiB (docker run --memory)"


def reason(cgroup: Path, end: str, before: dict[str, str], after: dict[str, str]) -> str:
    """Return the reason that is given for the child's end."""
    for name, text in before.items():
        (cgroup / name).write_text(text)
    program = PROGRAM.format(root=str(ROOT), cgroup=str(cgroup), after=after, end=end)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (KILLED, f"the command was killed by SIGKILL: {RAN_OUT}"),
        # As a shell ends when its last command was killed.
        ("return 137", f"the command ended with exit code 137: {RAN_OUT}"),
        # As a script ends when it has lost a helper process.
        ("return 1", f"the command ended with exit code 1, {AFTER_A_KILL}: {RAN_OUT}"),
        ("return 0", "the command ended with exit code 0"),
    ],
)
def test_memory_that_ran_out_is_told(tmp_path: Path, end: str, said: str) -> None:
    assert reason(tmp_path, end, BEFORE, AFTER) == said


@pytest.mark.parametrize(
    ("end", "said"),
    [(KILLED, "was killed by SIGKILL"), ("return 137", "ended with exit code 137")],
)
def test_a_kill_that_was_not_for_memory_is_no_guess(tmp_path: Path, end: str, said: str) -> None:
    assert reason(tmp_path, end, BEFORE, BEFORE) == f"the command {said}"


def test_where_nobody_counts_the_likely_cause_is_asked_for(tmp_path: Path) -> None:
    assert reason(tmp_path, KILLED, {}, {}) == "the command was killed by SIGKILL: out of memory?"
