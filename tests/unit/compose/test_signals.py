"""Signals that end a run are queued, unless the process was started to ignore them."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "compose"
PROGRAM = """
import os, signal
from queue import SimpleQueue
from local_cluster.run.event_queue import SignalReceived, listen_to_signals

queue = SimpleQueue()
listen_to_signals(queue.put)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    os.kill(os.getpid(), number)
while not queue.empty():
    print(queue.get().code)
"""


@pytest.mark.parametrize(
    ("deaf_to", "codes"), [([], "129 130 143"), ([signal.SIGHUP], "130 143")], ids=["all", "nohup"]
)
def test_each_signal_has_its_exit_code(deaf_to, codes):
    def ignore():
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN if number in deaf_to else signal.SIG_DFL)

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=FOLDER,
        preexec_fn=ignore,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == codes.split(), done.stderr
