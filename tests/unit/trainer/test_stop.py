"""Real signals to a real process, and its exit code."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading
from cluster_trainer.process.stop import StopRequest
stop = StopRequest(lambda code, reason: os._exit(code))
stop.is_watched = {watched}
stop.listen(grace_seconds={grace})
signal.signal(signal.SIGTERM, lambda *_: None)  # as TensorFlow does, and keeps the signal to itself
print("ready", flush=True)
while not stop.signal_number:
    threading.Event().wait(0.01)
print("heard", flush=True)
while {deaf}:
    threading.Event().wait(0.01)
os._exit(stop.signal_number)
"""


def end_of(*, watched, grace, deaf, signals=(signal.SIGTERM,)):
    program = PROGRAM.format(watched=watched, grace=grace, deaf=deaf)
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        for number in signals:
            child.send_signal(number)
            child.stdout.readline()
        return child.wait(timeout=20)
    finally:
        child.kill()
        child.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_looks_ends_by_itself(number):
    assert end_of(watched=True, grace=15, deaf=False, signals=[number]) == number


def test_a_run_that_hangs_is_ended_after_the_grace():
    assert end_of(watched=True, grace=0.2, deaf=True) == 143


def test_a_run_that_does_not_look_is_ended_at_once():
    assert end_of(watched=False, grace=15, deaf=True) == 143


def test_a_second_signal_ends_the_grace():
    signals = [signal.SIGTERM, signal.SIGINT]
    assert end_of(watched=True, grace=15, deaf=True, signals=signals) == 143
