"""Commands after `up` was killed (SIGKILL) between the starts of two workers."""

import json

import pytest

from harness.waiting import wait_until

pytestmark = pytest.mark.slow

SECONDS = 60
HOSTS = "ana@m1 ana@m2"


@pytest.fixture
def killed(empty):
    """Machines where worker 0 runs on m1 and worker 1 was not started."""
    first, second = empty.machines["m1"], empty.machines["m2"]
    empty.let_workers_run()
    second.hang("detached")
    process = empty.start("up", HOSTS=HOSTS)
    started = lambda: first.containers and empty.is_asked_to_start("m2")  # noqa: E731
    wait_until(started, SECONDS, "one worker is started", lambda: str(empty.states()))
    process.kill()
    process.wait()
    second.cut_hanging("detached")
    empty.let_workers_run(is_allowed=False)
    assert empty.states() == {"m1": {"p-worker-0": "running"}, "m2": {}, "m3": {}}
    return empty


def test_status_says_which_worker_was_not_started(killed):
    done = killed.run("status", "--json")
    assert done.returncode == 0, done
    first, second = json.loads(done.stdout)
    assert (first["state"], first["trouble"]) == ("running", "")
    assert "interrupted" in second["trouble"]
    assert "make resume" in second["trouble"]


def test_down_removes_what_was_started(killed):
    done = killed.run("down")
    assert done.returncode == 0, done
    assert killed.kept() is None
    assert killed.states() == {"m1": {}, "m2": {}, "m3": {}}


@pytest.mark.parametrize(
    ("command", "hosts", "now"),
    [
        ("up", HOSTS, {"m1": {"p-worker-0": "exited"}, "m2": {"p-worker-1": "exited"}, "m3": {}}),
        *[
            pytest.param(*one, marks=pytest.mark.long)
            for one in [
                (
                    "resume",
                    "",
                    {"m1": {"p-worker-0": "exited"}, "m2": {"p-worker-1": "exited"}, "m3": {}},
                ),
                ("up", "ana@m3", {"m1": {}, "m2": {}, "m3": {"p-worker-0": "exited"}}),
            ]
        ],
    ],
)
def test_another_start_stops_what_was_started_and_starts_all(killed, command, hosts, now):
    done = killed.run(command, HOSTS=hosts)
    assert done.returncode == 0, done
    assert "worker-0 on ana@m1" in done.stdout
    assert len(killed.machines["m1"].calls("stop")) == 1
    assert killed.states() == now
    assert killed.kept().is_started


def test_stop_stops_what_was_started(killed):
    done = killed.run("stop")
    assert done.returncode == 0, done
    assert killed.states()["m1"] == {"p-worker-0": "exited"}


def test_a_worker_that_was_not_started_cannot_be_started_alone(killed):
    done = killed.run("resume", "1")
    assert done.returncode == 1, done
    assert "`make resume` starts all" in done.stderr


def test_a_worker_that_is_started_after_the_kill_completes_the_cluster(killed):
    killed.put("m2", 1, start=killed.kept().start)
    assert killed.run("up", HOSTS=HOSTS).returncode == 78
    assert killed.kept().is_started
    done = killed.run("status", "--json")
    assert [one["trouble"] for one in json.loads(done.stdout)] == ["", ""]
    assert killed.run("down").returncode == 0
    assert killed.states() == {"m1": {}, "m2": {}, "m3": {}}


@pytest.mark.long
def test_a_worker_that_is_started_after_down_is_named_with_what_removes_it(killed):
    assert killed.run("down").returncode == 0
    killed.put("m2", 1)
    done = killed.run("up", HOSTS=HOSTS)
    assert done.returncode == 78, done
    assert "docker --host ssh://ana@m2 rm --force p-worker-1" in done.stderr
