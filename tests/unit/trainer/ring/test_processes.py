"""All others notice and name a process that is killed or stopped."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.rings import over_tcp

TRAINER = Path(__file__).parents[4] / "trainer"
SIZE = 3
PROGRAM = """
import socket, sys, time
import numpy as np
from cluster_trainer.collectives.ring.ring import Ring

rank, size, left, right = map(int, sys.argv[1:])
ring = Ring(rank, size, 1, socket.socket(fileno=left), socket.socket(fileno=right),
            time_limit_seconds=0.5)
try:
    while True:
        ring.all_reduce(np.ones(100_000, np.float32))
        print("a sum", flush=True)
except Exception as problem:
    print(time.monotonic(), type(problem).__name__, problem.rank, problem, sep="|", flush=True)
"""


@pytest.fixture
def members() -> Iterator[list[subprocess.Popen[str]]]:
    pairs = [over_tcp() for _ in range(SIZE)]
    started = [start(rank, pairs[rank - 1][1], pairs[rank][0]) for rank in range(SIZE)]
    for end in (end for pair in pairs for end in pair):
        end.close()
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(rank: int, left: socket.socket, right: socket.socket) -> subprocess.Popen[str]:
    fds = left.fileno(), right.fileno()
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, (rank, SIZE, *fds))],
        env={**os.environ, "PYTHONPATH": str(TRAINER)},
        pass_fds=fds,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("sign", "how", "limit_seconds"),
    [(signal.SIGKILL, "the connection to it", 0.5), (signal.SIGSTOP, "no heartbeat", 2.0)],
    ids=["killed", "stopped"],
)
def test_all_others_name_the_rank_that_is_gone(
    members: list[subprocess.Popen[str]], sign: signal.Signals, how: str, limit_seconds: float
) -> None:
    for process in members:
        assert process.stdout
        assert process.stdout.readline() == "a sum\n"
    begin = time.monotonic()
    members[1].send_signal(sign)
    for process in (members[0], members[2]):
        last = process.communicate(timeout=20)[0].splitlines()[-1]
        print(f"{float(last.split('|')[0]) - begin:.3f} s", last)
        moment, kind, rank, text = last.split("|")
        assert (kind, rank) == ("PeerLost", "1")
        assert how in text
        assert float(moment) - begin < limit_seconds
