"""The identity of a process: its number and its start."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.waiting import wait_until
from local_cluster import process_identity
from local_cluster.process_identity import has_ended, identity_of


@pytest.fixture(params=["proc", "ps"])
def process(request, monkeypatch):
    """A process on a system with /proc, and on one with a `ps` only."""
    if request.param == "ps":
        monkeypatch.setattr(process_identity, "_stat", lambda _: [])
        # Linux's ps computes this time, so that two answers may differ by a second.
        once = functools.cache(process_identity.start_by_ps)
        monkeypatch.setattr(process_identity, "start_by_ps", once)
    elif not Path("/proc/self").is_dir():
        pytest.skip("no /proc")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        yield running


def test_one_that_runs_has_not_ended(process):
    for number in (process.pid, os.getpid(), 1):  # 1 is another user's, unless root runs the test
        identity = identity_of(number)
        assert identity.split() == [identity]
        assert identity.startswith(f"{number}@")
        assert not has_ended(identity)


def test_one_that_is_gone_has_ended(process):
    identity = identity_of(process.pid)
    process.communicate(b"\n")
    assert has_ended(identity)
    assert has_ended(str(process.pid))


def test_another_process_with_its_number_is_not_it(process):
    assert has_ended(f"{process.pid}@1")


def test_the_number_alone_is_kept_where_the_start_is_unknown(process, monkeypatch):
    identity = identity_of(process.pid)
    monkeypatch.setattr(process_identity, "_stat", lambda _: [])
    monkeypatch.setattr(process_identity, "start_by_ps", lambda _: "")
    assert identity_of(process.pid) == str(process.pid)
    assert not has_ended(identity)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc")
def test_one_that_its_parent_has_not_looked_after_has_ended():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = identity_of(process.pid)
        process.stdin.close()
        wait_until(lambda: has_ended(identity), 20, "it ends", lambda: "")
        assert process.returncode is None
