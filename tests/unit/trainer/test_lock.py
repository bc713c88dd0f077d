import signal
import subprocess
import sys
import threading

import pytest

from cluster_trainer.data.preparing.lock import alone

HOLD = """
import sys, time
from pathlib import Path
from cluster_trainer.data.preparing.lock import alone
with alone(Path(sys.argv[1]), lambda: None):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / ".lock"


@pytest.fixture
def holder(file):
    """Another process that holds the lock."""
    line = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_nobody_waits_for_a_free_lock(file):
    for _ in range(2):
        with alone(file, lambda: pytest.fail("waits")):
            pass


def test_who_waits_says_so_and_goes_on_when_the_holder_is_killed(file, holder):
    said, entered = threading.Event(), threading.Event()

    def wait():
        with alone(file, said.set):
            entered.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert said.wait(20)
    assert not entered.is_set()
    holder.send_signal(signal.SIGKILL)
    assert entered.wait(20)
    thread.join()
