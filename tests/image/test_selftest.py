"""`selftest` in one container, on CPUs."""

import json

import pytest

from harness.ended import run_and_remove, wait_for_end
from harness.waiting import wait_for_text

MOST_SECONDS = 120
# The engine mounts /dev/null in place of the files by which GPUs are counted.
TWO_GPUS = {"volumes": ["/dev/null:/dev/nvidia0", "/dev/null:/dev/nvidia1"]}
OF_GPUS = {"GPUs", "driver", "peer access", "NCCL between GPUs"}
OF_MACHINES = {
    "machines meet",
    "NCCL between machines",
    "machines over a ring",
    "machines over TensorFlow",
}


def parts_of(ended):
    return {part["part"]: part for part in json.loads(ended.out)["parts"]}


def named(parts, state):
    return {name for name, part in parts.items() if part["state"] == state}


@pytest.fixture(scope="module")
def whole(workbench):
    """A whole self-test of a machine without GPUs."""
    return run_and_remove(workbench, "selftest", "--json")


def test_all_that_can_be_tried_on_cpus_holds(whole):
    parts = parts_of(whole)
    assert whole.code == json.loads(whole.out)["exit_code"] == 0, whole.out
    assert named(parts, "failed") == set()
    assert named(parts, "not tried") == OF_GPUS | OF_MACHINES
    assert all(part["found"] for part in parts.values())


def test_it_is_done_in_two_minutes(whole):
    assert whole.seconds < MOST_SECONDS


def test_devices_and_a_kill_leave_the_weights_of_one_device(whole):
    parts = parts_of(whole)
    assert parts["all devices"]["facts"]["replicas"] == 2
    assert parts["all devices"]["facts"]["difference"] < 1e-4
    killed = parts["kill and resume"]["facts"]
    assert killed["restarts"] == [1]
    assert killed["digests"] == parts["one device"]["facts"]["digests"]
    assert killed["first_epochs"][0] >= 1


def test_the_conclusion_has_the_rates(whole):
    rate = parts_of(whole)["one device"]["facts"]["examples_per_second"]
    assert rate > 0
    assert f"{rate:,.0f}" in json.loads(whole.out)["conclusion"][0]


def test_failures_and_hangs_are_rows_with_advice_and_the_exit_code(run_to_end):
    ended = run_to_end("selftest", "--json", "--limit", "1", **TWO_GPUS)
    parts = parts_of(ended)
    assert ended.code == json.loads(ended.out)["exit_code"] == 1
    assert named(parts, "failed") == {"GPUs", "/dev/shm", "one device"}
    assert "--shm-size" in parts["/dev/shm"]["advice"]
    assert "within 1 s" in parts["one device"]["found"]
    assert "one device" in parts["all devices"]["found"]


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(["--jsn"], {}), ([], {"WORKER_HOSTS": "a:1,b:1", "WORKER_INDEX": "7"})],
)
def test_what_is_refused_is_not_tried(run_to_end, arguments, environment):
    ended = run_to_end("selftest", *arguments, environment=environment)
    assert (ended.code, ended.out) == (78, "")
    assert ended.err


def test_a_stop_ends_it_and_leaves_nothing(run_container):
    container = run_container("selftest")
    wait_for_text(container, "selftest: /dev/shm")
    container.stop(timeout=10)
    ended = wait_for_end(container)
    assert ended.code == 143
    assert ended.seconds < 60
