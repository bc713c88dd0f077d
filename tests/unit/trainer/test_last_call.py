"""The last call of a process is made at its end, when no thread can be started any more."""

import subprocess
import sys
import time

import pytest

# As in Python since 3.12.2: no thread can be started after the end of the main program.
PROGRAM = """
import atexit, os, sys, threading, _thread
from cluster_trainer.process.last_call import LastCall

def refuse(*_):
    raise RuntimeError("can't create new thread at interpreter shutdown")

last = LastCall().begin()
atexit.register({ends})
{more}
atexit.register(lambda: setattr(threading, "_start_new_thread", refuse))
atexit.register(lambda: setattr(threading, "_start_joinable_thread", refuse))
"""
MADE = "last.make(lambda: print('made', threading.current_thread().name, flush=True), 20)"


def run(ends: str, more: str = "") -> str:
    program = PROGRAM.format(ends=f"lambda: {ends}", more=more)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_it_is_made_at_the_end_of_the_process():
    assert run(MADE) == "made last-call\n"


def test_a_thread_that_is_started_then_would_be_refused():
    with pytest.raises(AssertionError, match="interpreter shutdown"):
        run("threading.Thread(target=print).start()")


def test_one_that_does_not_return_is_not_waited_for():
    begin = time.monotonic()
    assert run("last.make(threading.Event().wait, 0.2)") == ""
    assert time.monotonic() - begin < 10


def test_one_that_is_not_wanted_holds_nobody_up():
    assert run("None") == ""


def test_a_process_that_was_forked_off_makes_none():
    assert run("None", f"os.fork() or ({MADE}, os._exit(0)); os.wait()") == ""
