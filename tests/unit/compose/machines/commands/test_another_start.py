"""Two operators with one project on the same machines: nobody touches the other's workers."""

import json

import pytest

pytestmark = pytest.mark.slow

HOSTS = "ana@m1 ana@m2"
THEIRS = "theirs"


@pytest.fixture
def another(empty):
    """An own cluster that has ended, and in its place another operator's, which runs."""
    assert empty.run("up", HOSTS=HOSTS).returncode == 0
    for index, machine in enumerate(("m1", "m2")):
        empty.put(machine, index, run=THEIRS, start=THEIRS)
    return empty


RUNNING = {"m1": {"p-worker-0": "running"}, "m2": {"p-worker-1": "running"}, "m3": {}}


@pytest.mark.parametrize(
    "command", [["stop"], ["stop", "1"], ["down"], ["attach"], ["logs"]], ids=" ".join
)
def test_another_starts_workers_are_left_as_they_are(another, command):
    another.run(*command)
    assert another.states() == RUNNING


def test_a_worker_of_another_start_is_not_started_again(another):
    another.put("m2", 1, "exited", run=THEIRS, start=THEIRS)
    done = another.run("resume", "1")
    assert done.returncode == 1, done
    assert "has no container" in done.stderr
    assert another.states()["m2"] == {"p-worker-1": "exited"}


def test_the_status_shows_no_worker_of_another_start(another):
    found = json.loads(another.run("status", "--json").stdout)
    assert [one["state"] for one in found] == ["gone", "gone"]


@pytest.mark.parametrize("command", [["up"], ["resume"], ["replace", "ana@m2", "ana@m3"]])
def test_a_start_does_not_take_another_starts_workers_for_its_own(another, command):
    done = another.run(*command, HOSTS="" if command[0] == "replace" else HOSTS)
    assert done.returncode == 78, done
    assert another.states() == RUNNING
    line = next(line for line in done.stderr.splitlines() if "ana@m1: " in line)
    assert "p-worker-0 of the run theirs" in line
    assert "COMPOSE_PROJECT_NAME=" in line


def test_a_worker_of_another_start_that_has_ended_keeps_its_container(another):
    another.put("m1", 0, "exited", run=THEIRS, start=THEIRS)
    done = another.run("up", HOSTS="ana@m1")
    assert done.returncode == 78, done
    assert "p-worker-0 of the run theirs, which has ended" in done.stderr
    assert another.states()["m1"] == {"p-worker-0": "exited"}


def test_down_forgets_a_cluster_whose_workers_another_start_has_replaced(another):
    assert another.run("down").returncode == 0
    assert another.kept() is None
