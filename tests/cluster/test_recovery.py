"""A command that is killed while TensorFlow's cluster trains: all start again, meet and train.

Over a ring, only the killed command starts again (test_restart_policies.py).
"""

import re
import time

import pytest

from harness.waiting import logs_of, wait_for_text, wait_until

# test_restart_policies.py also kills commands, and compares the final weights.
pytestmark = pytest.mark.long

LONG = {
    "VERBOSE": "1",  # every worker logs its progress
    "TRAINER_EPOCHS": "1000",
    "TRAINER_THREADS": "1",
    "TRAINER_COLLECTIVES": "tensorflow",
}
# The trainer is two processes with the same command line. This kills both.
KILL_TRAINING = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    command = open(f"/proc/{pid}/cmdline").read().split("\\0")
    if command[-2:] == ["trainer", ""]:
        os.kill(int(pid), signal.SIGKILL)
"""
AGREED = "2 workers are here and agree"
RECOVERY_SECONDS = 60


def wait_until_it_trains_again(worker):
    def trains():
        *earlier, last = logs_of(worker).split(AGREED)
        return len(earlier) == 2 and re.search(r"epoch +\d+/1000", last)

    wait_until(trains, RECOVERY_SECONDS, "it trains again", lambda: logs_of(worker))


@pytest.mark.parametrize("victim", [0, 1], ids=["the-chief", "a-worker"])
def test_a_killed_command_is_started_again_on_all_workers(peers, victim):
    cluster = peers(2)
    workers = [cluster.start(index, tmpfs={"/runs": "mode=1777"}, **LONG) for index in range(2)]
    wait_for_text(workers[0], "test accuracy", 90)
    begin = time.monotonic()
    killed = workers[victim].exec_run(["python", "-c", KILL_TRAINING])
    assert killed.exit_code == 0, killed.output
    for worker in workers:
        wait_until_it_trains_again(worker)
    print(f"recovered in {time.monotonic() - begin:.1f} s")
    assert "was killed by SIGKILL" in logs_of(workers[victim])
    assert "restart 1 of 3" in logs_of(workers[victim])
    assert "restart 1 of 3" in logs_of(workers[1 - victim])
