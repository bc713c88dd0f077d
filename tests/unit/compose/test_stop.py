"""Whether the process that runs a cluster has ended."""

import os
import subprocess
import sys

import pytest

from harness.waiting import wait_until
from local_cluster.commands.stop import has_ended


@pytest.fixture
def process():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        yield running


def test_one_that_runs_has_not(process):
    assert not has_ended(process.pid)
    assert not has_ended(os.getpid())
    assert not has_ended(1)  # somebody else's, unless root looks


def test_one_that_is_gone_has(process):
    process.communicate(b"\n")
    assert has_ended(process.pid)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc")  # noqa: PTH112
def test_one_that_its_parent_has_not_looked_after_has(process):
    process.stdin.close()
    wait_until(lambda: has_ended(process.pid), 20, "it ends", lambda: "")
    assert process.returncode is None
