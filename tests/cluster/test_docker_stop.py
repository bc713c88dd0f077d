"""`docker stop` on a worker that starts or evaluates: it ends in time, with exit code 143.

test_gate.py stops workers at the gate, and test_lost_worker.py stops a worker that trains.
"""

import time

import pytest

from harness.ended import wait_for_end
from harness.waiting import wait_for_text

# The default of `docker stop`, after which it kills.
GRACE_SECONDS = 10
# A pass over the test data takes about a minute, so the test can stop a run that evaluates.
MUCH_TO_TEST = """
import numpy as np

def load():
    train = np.zeros([64, 8, 8, 1], np.uint8), np.zeros([64], np.int64)
    test = np.zeros([1_000_000, 8, 8, 1], np.uint8), np.zeros([1_000_000], np.int64)
    return train, test
"""
LONG = {"TRAINER_EPOCHS": "1000", "TRAINER_THREADS": "1"}
EVALUATES = {
    "TRAINER_DATASET": "own_data:load",
    "TRAINER_GLOBAL_BATCH_SIZE": "4",
    "TRAINER_EPOCHS": "1",
    "TRAINER_THREADS": "1",
}


@pytest.fixture
def workers(peers, tmp_path):
    """Start both workers of a cluster."""
    (tmp_path / "own_data.py").write_text(MUCH_TO_TEST)

    def start(settings):
        cluster = peers(2)
        volumes = [f"{tmp_path}:/workspace:ro"]
        tmpfs = {"/runs": "mode=1777"}
        return [
            cluster.start(index, volumes=volumes, tmpfs=tmpfs, **settings) for index in range(2)
        ]

    return start


@pytest.mark.parametrize(
    ("phase", "settings", "line"),
    [
        pytest.param(
            *("start-up", LONG, "2 workers are here and agree"),
            id="start-up",
            marks=pytest.mark.long,  # tests/image/test_waiting_for_peers.py
        ),
        pytest.param("evaluation", EVALUATES, "evaluating: ", id="evaluation"),
    ],
)
def test_stops_within_the_grace_period(workers, phase, settings, line):
    first, _ = workers(settings)
    wait_for_text(first, line, 90)
    begin = time.monotonic()
    first.stop(timeout=GRACE_SECONDS)
    seconds = time.monotonic() - begin
    ended = wait_for_end(first)
    assert ended.code == 143, (phase, ended)
    assert seconds < GRACE_SECONDS, phase
    assert "Traceback" not in ended.err
