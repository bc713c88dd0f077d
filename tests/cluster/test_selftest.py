"""`selftest` on several machines: with a peer, and with a peer that never comes."""

import json

import pytest

from harness.ended import wait_for_end

MAX_SECONDS = 550
TRAINED = ["machines over a ring", "machines over TensorFlow"]


def parts_of(ended):
    return {part["part"]: part for part in json.loads(ended.out)["parts"]}


@pytest.mark.long
def test_two_machines_train_as_one_device_each_way_and_after_a_kill(peers):
    cluster = peers(2)
    workers = [cluster.start(index, "selftest", "--json") for index in range(2)]
    for ended in [wait_for_end(worker, MAX_SECONDS) for worker in workers]:
        parts = parts_of(ended)
        assert ended.code == 0, ended
        assert {parts[name]["state"] for name in ["machines meet", *TRAINED]} == {"held"}
        assert [parts[name]["facts"]["replicas"] for name in TRAINED] == [2, 2]
        assert parts["kill and resume"]["facts"]["restarts"] == [0, 1]
        assert parts["kill and resume"]["state"] == "held"
        conclusion = json.loads(ended.out)["conclusion"]
        assert sum("Between these machines" in one for one in conclusion) == 1


@pytest.mark.long
def test_a_peer_that_never_comes_is_one_row(peers):
    worker = peers(2).start(0, "selftest", "--json", "--limit", "1", RENDEZVOUS_TIMEOUT="3")
    ended = wait_for_end(worker)
    parts = parts_of(ended)
    assert ended.code == 1
    assert parts["machines meet"]["state"] == "failed"
    assert parts["machines meet"]["advice"]
    assert {parts[name]["state"] for name in TRAINED} == {"not tried"}
    assert "waiting for 1 of 2 workers" in ended.err
