"""A worker that stands still for TRAINER_SILENCE_SECONDS is lost."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

from cluster_trainer import train
from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.neighbours import VARIABLE, Neighbours
from cluster_trainer.collectives.ring.errors import PeerLost
from cluster_trainer.distribution import ring, strategy
from cluster_trainer.settings.job import read_job

SECONDS = 1
# Allowance for a busy machine, far below the default of 10.
LATER_SECONDS = 5
HOSTS = ["127.0.0.1:4000", "127.0.0.1:4001"]
GIVEN = {
    VARIABLE: "7",
    "TF_CONFIG": json.dumps({"cluster": {"worker": HOSTS}, "task": {"type": "worker", "index": 0}}),
    "TRAINER_SILENCE_SECONDS": str(SECONDS),
}
# The other worker is heard, and then stands still.
OTHER = """
import os, signal, socket, sys
from cluster_trainer.collectives.newcomers import Newcomers
from cluster_trainer.collectives.ring.ring import Ring

ring = Ring(1, 2, 5, *[socket.socket(fileno=int(number)) for number in sys.argv[1:]])
Newcomers().look(ring)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture(autouse=True)
def other(monkeypatch):
    """Another worker, with which `join` connects this one."""
    one, two = socket.socketpair(), socket.socketpair()  # a rank's right link is the first end
    ends = [one[1], two[0]]
    fds = [end.fileno() for end in ends]
    process = subprocess.Popen([sys.executable, "-c", OTHER, *map(str, fds)], pass_fds=fds)
    for end in ends:
        end.close()
    monkeypatch.setattr(ring, "join", lambda _: Neighbours(0, 2, 5, (0, 1), two[1], one[0]))
    yield process
    process.kill()
    process.wait()
    if made := process_ring.current():
        made.close()
    process_ring.use(None)


def as_a_script(_):
    ring.offer_to_script(GIVEN)


def as_the_trainer(monkeypatch):
    # This process has started TensorFlow already.
    monkeypatch.setattr(strategy, "set_devices", lambda *_: ("CPU:0",))
    monkeypatch.setattr(strategy, "set_threads", lambda *_: 1)
    train.start_strategy(read_job(GIVEN, []))


@pytest.mark.parametrize("begin", [as_a_script, as_the_trainer])
def test_another_limit_than_the_default_holds_in_the_ring(monkeypatch, other, begin):
    begin(monkeypatch)
    made = process_ring.current()
    assert made.size == 2
    os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
    stands_still = time.monotonic()
    with pytest.raises(PeerLost, match=f"no heartbeat for {SECONDS} s"):
        made.barrier()
    assert time.monotonic() - stands_still < SECONDS + LATER_SECONDS
