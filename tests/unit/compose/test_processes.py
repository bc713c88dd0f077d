"""Other programs are waited for within a limit, whatever they have started."""

import subprocess
import time

import pytest

from harness.waiting import wait_until
from local_cluster import processes
from local_cluster.processes import NO_ANSWER, answer_of

PARENT = ["sh", "-c", "sleep 60 & echo $!; wait"]


def test_a_limit_holds_though_a_grandchild_keeps_the_pipes_open():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    began = time.monotonic()
    process = subprocess.Popen(["sh", "-c", "sleep 20 & echo $!; wait"], **pipes)
    answer = answer_of(process, 0.5)
    assert time.monotonic() - began < 10
    assert answer.returncode == NO_ANSWER
    assert "0.5 s" in answer.stderr


@pytest.fixture
def started():
    """Start a program that has a child; return its process and the child's number."""
    process = processes.start(PARENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    yield process, int(process.stdout.readline())
    processes.kill(process)


def is_alive(pid):
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return bool(state.strip()) and not state.startswith("Z")


def test_a_limit_ends_what_the_program_has_started(started):
    """`docker --host ssh://…` starts an ssh, which waits for a lost machine for minutes."""
    process, child = started
    assert is_alive(child)
    assert answer_of(process, 0.2).returncode == NO_ANSWER
    wait_until(lambda: not is_alive(child), 10, "the child's end", logs=str)
