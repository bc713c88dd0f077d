"""Work in a helper process: its result, and a stop that comes at the same moment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]
# The entrypoint's process, with signals blocked, and a piece of work that its helper does.
PROGRAM = """
import json, os, signal, sys, time
from dataclasses import asdict
sys.path.insert(0, {root!r})
from entrypoint.log import Log
from entrypoint.supervision.child import helper_process
from entrypoint.supervision.child.child_process import block_signals
from entrypoint.supervision.child.helper_process import retried, run_helper
helper_process.PAUSES_SECONDS = (0.01, 0.01)
LOG = Log("worker-0")

{work}

block_signals()
{before}
print(json.dumps(asdict(run_helper(work, "the work", LOG))))
"""
LONG = "def work(): return {code}, {char!r} * {count}"
# The stop comes while the helper works, and does not reach the helper itself.
STOPPED_MEANWHILE = """
def work():
    signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIG{name}}})
    os.kill(os.getppid(), signal.SIG{name})
    return {code}, "the reason"
"""
# The stop comes when the helper has ended, before its end is noticed.
STOPPED_AFTERWARDS = """
def work():
    return {code}, "the reason"

fork = os.fork

def fork_and_stop():
    pid = fork()
    if pid:
        while signal.SIGCHLD not in signal.sigpending():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIG{name})
    return pid

os.fork = fork_and_stop
"""
# The stop comes when the helper's end is known already.
STOPPED_LATE = """
def work():
    return {code}, "the reason"

read = helper_process.HelperProcess.read_text

def read_and_stop(self):
    os.kill(os.getpid(), signal.SIG{name})
    return read(self)

helper_process.HelperProcess.read_text = read_and_stop
"""


def ended(work: str, before: str = "") -> tuple[dict, str]:
    """Return the end of the work, and the log."""
    program = PROGRAM.format(root=str(ROOT), work=work, before=before)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("char", ["x", "\x00", "\ud800", "€"])
def test_a_long_reason_blocks_nobody_and_keeps_its_beginning(char: str) -> None:
    end, _ = ended(LONG.format(code=75, char=char, count=1_000_000))
    assert end["code"] == 75
    assert 10_000 < len(end["reason"]) < 200_000
    assert end["reason"].endswith("…")


def test_what_was_found_out_comes_back_whole() -> None:
    end, _ = ended(LONG.format(code=0, char="é", count=1_000_000))
    assert (end["code"], end["found"]) == (0, "é" * 1_000_000)


def test_work_without_a_reason_is_told_by_its_end() -> None:
    assert ended(LONG.format(code=7, char="", count=0))[0]["reason"] == (
        "the work ended with exit code 7"
    )


def test_work_that_was_killed_is_told_by_its_end() -> None:
    end, _ = ended("def work(): os.kill(os.getpid(), signal.SIGSEGV)")
    assert (end["code"], end["reason"]) == (139, "the work was killed by SIGSEGV")


@pytest.mark.parametrize("when", [STOPPED_MEANWHILE, STOPPED_AFTERWARDS, STOPPED_LATE])
@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("INT", 130)])
def test_a_stop_is_heard_though_the_work_succeeds(when: str, name: str, code: int) -> None:
    end, _ = ended(when.format(name=name, code=0))
    assert (end["code"], end["stopped"]) == (code, True)
    assert f"SIG{name}" in end["reason"]


@pytest.mark.parametrize("whom", ["os.getppid()", "os.getpid()"])
@pytest.mark.parametrize("name", ["HUP", "USR1", "QUIT"])
def test_other_signals_stop_nothing(name: str, whom: str) -> None:
    end, _ = ended(f"def work(): os.kill({whom}, signal.SIG{name}); return 0, 'found'")
    assert (end["code"], end["stopped"], end["found"]) == (0, False, "found")


def test_a_failure_is_told_though_a_stop_comes_after_it() -> None:
    end, _ = ended(STOPPED_LATE.format(name="TERM", code=78))
    assert (end["code"], end["stopped"], end["reason"]) == (78, False, "the reason")


FAILS = """
times = []

def failing():
    times.append(1)
    if len(times) <= {failures}:
        raise RuntimeError("can't start new thread")
    return 75, "the verdict"

work = retried(failing, "the work", LOG)
"""


def test_work_that_fails_is_retried_until_it_comes_to_a_verdict() -> None:
    end, said = ended(FAILS.format(failures=2))
    assert (end["code"], end["reason"]) == (75, "the verdict")
    assert said.count("WARNING worker-0 the work failed (RuntimeError") == 2


def test_work_that_always_fails_comes_to_no_verdict() -> None:
    end, said = ended(FAILS.format(failures=99))
    assert end["code"] == 1
    assert "can't start new thread" in end["reason"]
    assert "Traceback" not in said
