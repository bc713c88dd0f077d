"""TRAINER_SYNC_EVERY=auto on a throttled network, and on one that is not."""

import json
import re

import pytest

from harness.slow_link import limit
from harness.waiting import logs_of, wait_for_text, wait_until

MBIT = 1_000_000
NAME = "TRAINER_SYNC_EVERY=auto: "
RUN = {
    "TRAINER_SYNC_EVERY": "auto",
    "TRAINER_WIRE": "bfloat16",
    "TRAINER_EPOCHS": "100000",
    "TRAINER_PER_REPLICA_BATCH_SIZE": "64",
    "TRAINER_RUN_DIR": "/tmp/run",
}
# tests/inside/test_round_choice.py tests resumes, bit for bit.
pytestmark = pytest.mark.long


def choice_of(chief):
    """Return the chosen number of steps, and the percentage of time that sums took."""
    wait_for_text(chief, "because sums of gradients took", 120)
    said = next(line for line in logs_of(chief).splitlines() if "because sums of" in line)
    steps, percent = re.search(rf"{NAME}(\d+), because .* took (\d+)%", said).groups()
    return int(steps), int(percent)


def status_of(container):
    return json.loads(container.exec_run(["status", "--json"])[1])


def test_a_slow_network_gets_rounds_and_trains_on(peers, workbench):
    cluster = peers(2)
    workers = [cluster.start(index, **RUN) for index in range(2)]
    for one in workers:  # before TensorFlow is imported
        limit(one, workbench, 50 * MBIT)
    steps, percent = choice_of(workers[0])
    assert steps > 1
    assert percent > 10
    for one in workers:
        trains = lambda one=one: (status_of(one)["step"] or 0) > 100  # noqa: E731
        wait_until(trains, 120, "it trains", lambda: logs_of(workers[0]))
        assert status_of(one)["sync_every"] == steps


def test_a_fast_network_gets_none_or_is_told_why(peers):
    cluster = peers(2)
    workers = [cluster.start(index, **RUN) for index in range(2)]
    steps, percent = choice_of(workers[0])
    assert (steps == 1) == (percent < 10) or percent == 10  # it is rounded
