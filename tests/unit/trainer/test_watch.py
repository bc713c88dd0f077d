"""Real processes and real signals: a watcher, and its child, which may ignore signals."""

import json
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import json, os, signal, sys, time
from dataclasses import asdict
from pathlib import Path
import cluster_trainer.process.watch
from cluster_trainer.process.oom import OomKills
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.watch import AWAITED, Limits, Watch
cgroup = Path({cgroup!r})
cluster_trainer.process.watch.OomKills = lambda: OomKills(cgroup)
signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
reading, writing = os.pipe()
is_watched, begin = os.pipe()
deadline = Deadline()
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    os.close(begin)
    os.read(is_watched, 1) or os._exit(1)
    {child}
    signal.pause()  # all that may come is blocked: deaf, as TensorFlow is
waiting = lambda: print("waiting", flush=True)
limits = Limits(start_up_seconds={limit}, stop_seconds=0.3, deadline=deadline)
watch = Watch(child, reading, limits, say_waiting=waiting)
os.write(begin, b"1")
print("ready", flush=True)
print(json.dumps(asdict(watch.wait())), flush=True)
"""
HEARS = "os._exit(signal.sigwait([signal.SIGTERM]))"


def watched(child, limit=None, number=None, cgroup="/no/such/cgroup"):
    """Run the program, send `number` once it is ready, and return (code, reason)."""
    program = PROGRAM.format(child=child, limit=limit, cgroup=str(cgroup))
    watcher = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert watcher.stdout.readline() == "ready\n"
        if number:
            watcher.send_signal(number)
        said = watcher.stdout.read()
    finally:
        watcher.kill()
        watcher.wait()
    ended = json.loads(said.splitlines()[-1])
    return ended["code"], ended["reason"]


@pytest.mark.parametrize("code", [0, 1, 75, 78])
def test_a_child_that_ends_by_itself_has_said_why(code):
    assert watched(f"os._exit({code})") == (code, None)


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGKILL, 137, "SIGKILL: out of memory?"), (signal.SIGSEGV, 139, "SIGSEGV")],
)
def test_a_child_that_was_killed_is_explained(number, code, said):
    reason = f"the training process was killed by {said}"
    assert watched(f"os.kill(os.getpid(), {int(number)})") == (code, reason)


RAN_OUT = (
    ": out of memory, this container's limit is 600 MiB (docker run --memory); "
    "a smaller batch or a larger limit helps"
)


@pytest.mark.parametrize(
    ("kills", "why"), [(1, RAN_OUT), (0, "")], ids=["for-memory", "by-somebody"]
)
def test_a_kill_for_memory_is_told_from_one_by_somebody(tmp_path, kills, why):
    (tmp_path / "memory.events").write_text("oom_kill 0\n")
    (tmp_path / "memory.max").write_text("629145600\n")
    counted = f'(cgroup / "memory.events").write_text("oom_kill {kills}\\n")'
    killed = watched(f"{counted}; os.kill(os.getpid(), signal.SIGKILL)", cgroup=tmp_path)
    assert killed == (137, f"the training process was killed by SIGKILL{why}")


def test_a_cluster_that_is_not_complete_in_time_is_given_up():
    code, reason = watched("pass", limit=0.2)
    assert code == 75
    assert "not complete after 0.2 s (TRAINER_STARTUP_TIMEOUT_SECONDS)" in reason


def test_a_cluster_that_is_complete_has_no_limit():
    up = "os.write(writing, b'1'); time.sleep(0.6); os._exit(7)"
    assert watched(up, limit=0.3) == (7, None)


def test_one_that_has_asked_the_entrypoint_for_the_others_has_none_either():
    """The entrypoint has limits of its own. A stop is heard as before."""
    asks = "os.write(writing, b'r'); time.sleep(0.6); os._exit(7)"
    assert watched(asks, limit=0.3) == (7, None)
    up = "os.write(writing, b'r1'); time.sleep(0.6); os._exit(7)"
    assert watched(up, limit=0.3) == (7, None)
    stopped = watched("os.write(writing, b'r')", limit=0.3, number=signal.SIGTERM)
    assert stopped == (143, "stopped by SIGTERM")


def test_a_call_that_is_not_over_by_its_deadline_is_ended():
    code, reason = watched("deadline.set_in(0.2); os.kill(os.getppid(), signal.SIGCHLD)")
    assert code == 75
    assert "TRAINER_STALL_TIMEOUT_SECONDS" in reason


def test_a_stop_is_passed_on_to_a_child_that_hears():
    assert watched(HEARS, number=signal.SIGTERM) == (signal.SIGTERM, None)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_child_that_hears_nothing_is_ended_after_the_grace(number, code):
    assert watched("pass", number=number) == (code, f"stopped by {number.name}")
