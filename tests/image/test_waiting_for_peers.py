"""A worker whose peer never comes gives up in TensorFlow's wait, and stops when it is asked."""

import time

import pytest

from harness.ended import wait_for_end
from harness.waiting import logs_of, wait_until

LONELY = {
    "WORKER_HOSTS": "h0:2222,h1:2222",
    "WORKER_INDEX": "0",
    "RENDEZVOUS_TIMEOUT": "0",
    "MAX_RESTARTS": "0",
}
HEARTBEAT = "worker-0 waiting for the cluster of 2 workers"


@pytest.fixture
def lonely(run_container):
    def start(**settings):
        return run_container(hostname="h0", environment=LONELY | settings)

    return start


def test_gives_up_in_time_and_says_what_to_look_at(lonely):
    limit = {"TRAINER_COLLECTIVES": "tensorflow", "TRAINER_STARTUP_TIMEOUT_SECONDS": "3"}
    ended = wait_for_end(lonely(**limit))
    assert ended.code == 75
    assert "cluster was not complete after 3 s" in ended.out
    assert "addresses and ports" in ended.out


def test_says_what_it_waits_for_and_can_be_stopped_at_once(lonely):
    container = lonely(STOP_GRACE_SECONDS="25")
    wait_until(lambda: HEARTBEAT in logs_of(container), 60, "it waits", lambda: logs_of(container))
    begin = time.monotonic()
    container.stop(timeout=30)
    assert time.monotonic() - begin < 15
    assert wait_for_end(container).code == 143
