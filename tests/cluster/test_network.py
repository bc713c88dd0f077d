"""The network between containers is measured, and the slow container is named."""

import json

import pytest

from harness.ended import wait_for_end
from harness.slow_link import limit
from harness.waiting import logs_of, wait_for_text, wait_until

MBIT, GBIT = 1e6, 1e9
SLOW = 100 * MBIT


def test_the_slow_machine_is_named_with_its_rate(peers, workbench):
    cluster = peers(3)
    question = ("network", "--json", "--parameters", "25e6", "--step-ms", "250")
    workers = [cluster.start(2, *question)]  # it waits for the others while it is limited
    limit(workers[0], workbench, int(SLOW))
    workers += [cluster.start(index, *question) for index in range(2)]
    ended = [wait_for_end(one, 60) for one in workers]
    assert [one.code for one in ended] == [0, 0, 0], ended
    found = json.loads(ended[0].out)
    rates = {
        f"{one['from']} -> {one['to']}": one["gbit_per_second"] * GBIT for one in found["links"]
    }
    assert found["slow"] == ["worker-2 -> worker-0"], found
    assert rates["worker-2 -> worker-0"] == pytest.approx(SLOW, rel=0.25)
    assert min(rates["worker-0 -> worker-1"], rates["worker-1 -> worker-2"]) > 5 * SLOW
    times = [one["speed_up"] for one in found["estimates"]]
    assert times == sorted(times)
    assert times[0] < 0.2  # 100 MB take 10 s and more


def test_a_machine_that_does_not_come_is_named(peers):
    cluster = peers(3)
    started = [cluster.start(index, "network", RENDEZVOUS_TIMEOUT="6") for index in range(2)]
    for ended in [wait_for_end(one, 60) for one in started]:
        assert (ended.code, ended.out) == (75, "")
        assert f"worker-2 at {cluster.address(2)}" in ended.err.splitlines()[-1]


@pytest.mark.long
def test_a_start_tells_of_the_slow_link(peers, workbench):
    cluster = peers(2)
    run = {"TRAINER_EPOCHS": "100000", "TRAINER_RUN_DIR": "/tmp/run"}
    chief, other = (cluster.start(index, **run) for index in range(2))
    limit(other, workbench, int(SLOW))  # before TensorFlow is imported
    wait_for_text(chief, " network: ", 120)
    line = next(line for line in logs_of(chief).splitlines() if " network: " in line)
    assert "slowest worker-1 -> worker-0: " in line
    links = lambda: status_of(other)["network_links"]  # noqa: E731
    wait_until(links, 10, "status tells it", lambda: str(status_of(other)))
    assert [one["from"] for one in links()] == ["worker-0", "worker-1"]
    assert links()[1]["gbit_per_second"] * GBIT == pytest.approx(SLOW, rel=0.5)
    assert status_of(chief)["network_links"] == links()


def status_of(container):
    return json.loads(container.exec_run(["status", "--json"])[1])
