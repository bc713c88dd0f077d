"""`docker stop` on a training container, in every phase of a run: soon over, with 143."""

import time

import pytest

from harness.ended import wait_for_end
from harness.waiting import wait_for_text

# docker stop's own default, after which it kills.
GRACE_SECONDS = 10
# A pass over the test data takes about a minute, so that a run is found evaluating.
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
    """Start both workers of a cluster with the trainer, or only the first."""
    (tmp_path / "own_data.py").write_text(MUCH_TO_TEST)

    def start(count, settings):
        cluster = peers(2)
        volumes = [f"{tmp_path}:/workspace:ro"]
        tmpfs = {"/runs": "mode=1777"}
        return [
            cluster.start(index, volumes=volumes, tmpfs=tmpfs, **settings) for index in range(count)
        ]

    return start


@pytest.mark.parametrize(
    ("phase", "started", "settings", "line"),
    [
        ("the gate", 1, LONG, "waiting for 1 of 2 workers"),
        ("start-up", 2, LONG, "2 workers are here and agree"),
        ("training", 2, LONG, "test accuracy"),
        ("evaluation", 2, EVALUATES, "evaluating: "),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_stops_within_the_grace_period(workers, phase, started, settings, line):
    first, *_ = workers(started, settings)
    wait_for_text(first, line, 90)
    begin = time.monotonic()
    first.stop(timeout=GRACE_SECONDS)
    seconds = time.monotonic() - begin
    ended = wait_for_end(first)
    assert ended.code == 143, (phase, ended)
    assert seconds < GRACE_SECONDS, phase
    assert "Traceback" not in ended.err
