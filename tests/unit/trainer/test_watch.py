"""Real processes and real signals: a watcher and its child, which may hear nothing."""

import json
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import json, os, signal, sys, time
from dataclasses import asdict
from trainer.watch import AWAITED, Watch
signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    {child}
    signal.pause()  # all that may come is blocked: deaf, as TensorFlow is
waiting = lambda: print("waiting", flush=True)
watch = Watch(child, reading, start_up_seconds={limit}, stop_seconds=0.3, say_waiting=waiting)
print("ready", flush=True)
print(json.dumps(asdict(watch.wait())), flush=True)
"""
HEARS = "os._exit(signal.sigwait([signal.SIGTERM]))"


def watched(child, limit=None, number=None):
    """Run the program, send `number` once it is ready, and return (code, reason)."""
    program = PROGRAM.format(child=child, limit=limit)
    watcher = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert watcher.stdout.readline() == "ready\n"
        if number:
            watcher.send_signal(number)
        said = watcher.communicate(timeout=20)[0]
    finally:
        watcher.kill()
    ended = json.loads(said.splitlines()[-1])
    return ended["code"], ended["reason"]


@pytest.mark.parametrize("code", [0, 1, 75, 78])
def test_a_child_that_ends_by_itself_has_said_why(code):
    assert watched(f"os._exit({code})") == (code, None)


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGKILL, 137, "killed by SIGKILL: out of memory?"), (signal.SIGSEGV, 139, "SIGSEGV")],
)
def test_a_child_that_was_killed_is_explained(number, code, said):
    ended = watched(f"os.kill(os.getpid(), {int(number)})")
    assert ended[0] == code
    assert said in ended[1]


def test_a_cluster_that_is_not_complete_in_time_is_given_up():
    code, reason = watched("pass", limit=0.2)
    assert code == 75
    assert "not complete after 0.2 s (TRAINER_STARTUP_TIMEOUT_SECONDS)" in reason


def test_a_cluster_that_is_complete_has_no_limit():
    up = "os.write(writing, b'1'); time.sleep(0.6); os._exit(7)"
    assert watched(up, limit=0.3) == (7, None)


def test_a_stop_is_passed_on_to_a_child_that_hears():
    assert watched(HEARS, number=signal.SIGTERM) == (signal.SIGTERM, None)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_child_that_hears_nothing_is_ended_after_the_grace(number, code):
    assert watched("pass", number=number) == (code, f"stopped by {number.name}")
