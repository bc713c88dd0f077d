"""A worker with a quarter of a processor is reported as slow, with the reason."""

import json

import pytest

from harness.waiting import wait_for_text, wait_until

START_SECONDS = 120
NAMED_SECONDS = 15
RECOVERED_SECONDS = 60
PERIOD = 100_000
RUN = {"TRAINER_EPOCHS": "100000", "TRAINER_RUN_DIR": "/tmp/run", "TRAINER_THREADS": "1"}


@pytest.mark.long
def test_a_worker_with_a_quarter_of_a_processor_is_named(peers):
    cluster = peers(2)
    chief, other = (cluster.start(index, **RUN) for index in range(2))
    wait_for_text(chief, "test accuracy", START_SECONDS)
    assert status_of(other)["slow"] is False
    other.update(cpu_period=PERIOD, cpu_quota=PERIOD // 4)
    wait_for_text(other, "WARNING worker-1 worker-1 holds the others up: steps take", NAMED_SECONDS)
    wait_for_text(other, "its limit of 0.25 processors has stopped it for", 1)
    is_told = lambda: status_of(other)["slow"]  # noqa: E731
    wait_until(is_told, NAMED_SECONDS, "status tells it", lambda: str(status_of(other)))
    assert status_of(other)["slow_reason"].startswith("holds the others up")
    assert status_of(chief)["slow"] is False
    other.update(cpu_period=PERIOD, cpu_quota=-1)
    wait_for_text(other, "worker-1 no longer holds the others up", RECOVERED_SECONDS)


def status_of(container):
    return json.loads(container.exec_run(["status", "--json"])[1])
