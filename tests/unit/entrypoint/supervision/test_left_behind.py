"""Processes that a command leaves behind are ended with it, and waited for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
# A command, beside an older child of this process. `os.kill` of the process `hangs` does nothing,
# as of one that the kernel holds.
PROGRAM = """
import os, subprocess, sys, time
sys.path.insert(0, {root!r})
from entrypoint.supervision.child import child_process
from entrypoint.supervision.child.child_process import ChildProcess

kill, sent = os.kill, []
os.kill = lambda pid, number: sent.append(pid) if pid == hangs else kill(pid, number)
child_process.become_subreaper()
older = subprocess.Popen(["sleep", "60"])

def run():
    left = subprocess.Popen(["sleep", "60"], start_new_session=True, stdout=subprocess.DEVNULL)
    os.write(pipe[1], str(left.pid).encode())
    return 0

pipe = os.pipe()
child = ChildProcess(run, adopts=True)
child.wait()
left = int(os.read(pipe[0], 20))
hangs = {hangs}
began = time.monotonic()
child.kill_rest()
print("waited" if time.monotonic() - began > 2 else "went on", hangs in sent)
os.kill = kill
for pid in (older.pid, left):
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass
"""


@pytest.mark.parametrize(("hangs", "said"), [("older.pid", "went on"), ("left", "waited")])
def test_only_processes_of_the_command_are_waited_for(hangs: str, said: str) -> None:
    """An nvidia-smi that a broken GPU holds in the kernel would use up the time for a stop."""
    program = PROGRAM.format(root=str(ROOT), hangs=hangs)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50
    )
    assert done.stdout.strip() == f"{said} True"
