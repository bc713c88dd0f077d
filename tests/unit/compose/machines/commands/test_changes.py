"""Commands that change a cluster: the order of their steps, and the state after a failure."""

from dataclasses import replace

import pytest

from harness.waiting import wait_until
from machines import cluster_record
from machines.hosts_setting import Host
from machines.machine import OPTIONS, Machine

pytestmark = pytest.mark.slow

RUNNING = {"m1": {"p-worker-0": "running"}, "m2": {"p-worker-1": "running"}, "m3": {}}


def test_a_machine_is_replaced(world):
    done = world.run("replace", "ana@m2", "ana@m3")
    assert done.returncode == 0, done
    assert world.states() == {
        "m1": {"p-worker-0": "exited"},
        "m2": {},
        "m3": {"p-worker-1": "exited"},
    }
    assert [one.target for one in world.kept().hosts] == ["ana@m1", "ana@m3"]
    assert world.kept().is_started
    tried = (world.machines["m1"].folder / "tried").read_text()
    assert "m3.example:2222" in tried
    assert "m2" not in tried


@pytest.fixture
def two_on_m2(world):
    """A cluster with one worker on m1 and two on m2, which is lost."""
    world.keep("ana@m1 ana@m2 ana@m2 port=2300")
    world.put("m2", 2)
    world.machines["m2"].cut_off()
    return world


@pytest.mark.parametrize("by", ["ana@m3 ana@m3 port=2300", "ana@m3 port=2300 ana@m3 port=2400"])
def test_all_workers_of_a_lost_machine_are_replaced_at_once(two_on_m2, by):
    done = two_on_m2.run("replace", "ana@m2", by)
    assert done.returncode == 0, done
    assert two_on_m2.states()["m3"] == {"p-worker-1": "exited", "p-worker-2": "exited"}
    assert [one.target for one in two_on_m2.kept().hosts] == ["ana@m1", "ana@m3", "ana@m3"]
    assert two_on_m2.run("replace", "ana@m2", by).returncode == 0  # it was done already


@pytest.mark.parametrize("by", ["ana@m3", "ana@m3 ana@m3 port=1 ana@m3 port=2"])
def test_a_machine_with_two_workers_is_replaced_by_two(two_on_m2, by):
    before, record = two_on_m2.states(), two_on_m2.kept()
    done = two_on_m2.run("replace", "m2", by)
    assert done.returncode == 78, done
    assert "accepted: 2, for worker-1, worker-2 of ana@m2; or HOST=1" in done.stderr
    assert (two_on_m2.states(), two_on_m2.kept()) == (before, record)


def test_one_of_two_workers_of_a_machine_leaves_it_by_its_number(two_on_m2):
    two_on_m2.machines["m2"].cut_off(is_away=False)
    done = two_on_m2.run("replace", "2", "ana@m3")
    assert done.returncode == 0, done
    assert [one.text for one in two_on_m2.kept().hosts] == [
        *(f"ana@{name} dir='~/cluster-trainer'" for name in ("m1", "m2", "m3"))
    ]


@pytest.mark.parametrize(
    "refused",
    [
        lambda world: world.remember(HOSTS="ana@m1\nana@m2", CLUSTER_TOKEN="x"),
        lambda world: world.remember(HOSTS="ana@m1\nana@m2", SCRIPT="/gone.py"),
        lambda world: world.machines["m3"].cut_off(),
        lambda world: world.machines["m1"].fail("run", "no connection"),
        lambda world: world.put("m3", 1, "exited"),
        lambda world: world.machines["m3"].listen(2222),
        lambda world: (world.machines["m3"].folder / "cluster-trainer").touch(),
    ],
    ids=["token", "script", "away", "connections", "name", "port", "folder"],
)
def test_nothing_is_stopped_unless_all_can_be_done(world, refused):
    refused(world)
    before, record = world.states(), world.kept()
    done = world.run("replace", "ana@m2", "ana@m3")
    assert done.returncode == 78, done
    assert world.states() == before
    assert world.kept() == record


@pytest.mark.long
def test_a_machine_that_stays_and_cannot_be_stopped_leaves_the_record(world):
    world.machines["m1"].fail("stop")
    record = world.kept()
    done = world.run("replace", "ana@m2", "ana@m3")
    assert done.returncode == 1, done
    assert (world.kept(), world.states()["m3"]) == (record, {})
    world.machines["m1"].mend("stop")
    assert world.run("replace", "ana@m2", "ana@m3").returncode == 0


@pytest.mark.long
def test_a_replacement_that_was_cut_off_while_workers_were_started_goes_on(world):
    world.keep("ana@m1 ana@m3", is_started=False)
    world.machines["m2"].folder.joinpath("containers/p-worker-1").unlink()
    done = world.run("replace", "ana@m2", "ana@m3")
    assert done.returncode == 0, done
    assert world.states()["m3"] == {"p-worker-1": "exited"}
    assert world.kept().is_started


@pytest.mark.long
def test_a_replacement_whose_worker_does_not_start_can_be_repeated(world):
    world.machines["m2"].cut_off()
    world.machines["m3"].fail("detached")
    assert world.run("replace", "1", "ana@m3").returncode == 1
    assert not world.kept().is_started
    world.machines["m3"].mend("detached")
    done = world.run("replace", "1", "ana@m3")
    assert done.returncode == 0, done
    assert world.states()["m3"] == {"p-worker-1": "exited"}


@pytest.mark.parametrize("command", [["resume"], pytest.param(["up"], marks=pytest.mark.long)])
def test_a_start_that_was_cut_off_is_followed_by_another(world, command):
    world.keep(is_started=False)
    (world.machines["m2"].folder / "containers/p-worker-1").unlink()
    done = world.run(*command, HOSTS="ana@m1 ana@m2")
    assert done.returncode == 0, done
    assert [len(one.calls("stop")) for one in world.machines.values()] == [1, 0, 0]
    assert world.states()["m2"] == {"p-worker-1": "exited"}


@pytest.mark.parametrize("is_started", [True, False])
def test_a_cluster_that_runs_is_not_started_again(world, is_started):
    world.keep(is_started=is_started)
    assert world.run("resume").returncode == 78
    assert world.states() == RUNNING


@pytest.mark.parametrize("command", ["up", pytest.param("resume", marks=pytest.mark.long)])
@pytest.mark.parametrize("is_started", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_machine_of_the_last_start_that_is_away_is_not_forgotten(world, command, is_started):
    world.keep(is_started=is_started)
    world.put("m1", 0, "exited" if is_started else "running")
    world.machines["m2"].cut_off()
    before, record = world.states(), world.kept()
    done = world.run(command, HOSTS="ana@m1 ana@m3")
    assert done.returncode == 78, done
    assert "ana@m2 does not answer" in done.stderr
    assert "worker-1 of the run first" in done.stderr
    assert "make replace HOST=ana@m2" in done.stderr
    assert (world.states(), world.kept()) == (before, record)
    world.machines["m2"].cut_off(is_away=False)
    world.put("m2", 1, "exited")
    assert world.run(command, HOSTS="ana@m1 ana@m3").returncode == 0
    assert world.states()["m2"] == {}


@pytest.mark.long
def test_a_machine_without_a_worker_may_be_away(world):
    world.put("m1", 0, "exited")
    world.machines["m2"].cut_off()
    world.keep(removed=(1,))
    done = world.run("up", HOSTS="ana@m1 ana@m3")
    assert done.returncode == 0, done


@pytest.mark.parametrize("word", ["ps", pytest.param("rm", marks=pytest.mark.long)])
def test_a_start_that_fails_is_not_forgotten_where_its_worker_may_run(empty, word):
    first, second = empty.machines["m1"], empty.machines["m2"]
    empty.let_workers_run()
    first.fail(word)
    second.fail("detached")
    done = empty.run("up", HOSTS="ana@m1 ana@m2")
    assert done.returncode == 1, done
    assert "docker rm --force p-worker-0" in done.stderr
    assert first.containers == {"p-worker-0": "running"}
    assert empty.kept()
    first.mend(word)
    assert empty.run("down").returncode == 0
    assert first.containers == {}


def test_a_machine_that_does_not_reach_another_is_named_with_it_and_nothing_is_started(empty):
    empty.machines["m1"].cannot_reach("m2.example:2222", "timed out")
    done = empty.run("up", HOSTS="ana@m1 ana@m2")
    assert done.returncode == 78, done
    (line,) = [line for line in done.stderr.splitlines() if "ana@m" in line]
    assert line.startswith("cluster-trainer: ana@m1: ")
    assert " ana@m2 at m2.example:2222 (timed out)" in line
    assert not any(map(empty.is_asked_to_start, empty.machines))
    assert not empty.kept()


def test_a_start_that_fails_leaves_neither_worker_nor_record(empty):
    empty.let_workers_run()
    empty.machines["m2"].fail("detached")
    assert empty.run("up", HOSTS="ana@m1 ana@m2").returncode == 1
    assert empty.machines["m1"].containers == {}
    assert not empty.kept()


@pytest.mark.long
def test_a_machine_that_is_named_differently_is_known_by_its_workers_label(empty):
    assert empty.run("up", HOSTS="m1 m2").returncode == 0
    done = empty.run("up", HOSTS="ana@m1 ana@m2")
    assert done.returncode == 0, done
    assert [one.target for one in empty.kept().hosts] == ["ana@m1", "ana@m2"]


@pytest.mark.long
def test_a_worker_that_runs_may_leave_a_machine_that_is_named_differently(empty):
    empty.let_workers_run()
    process = empty.start("up", HOSTS="m1 m2")
    wait_until(lambda: empty.kept() and empty.kept().is_started, 60, "it runs", empty.states)
    process.kill()
    process.wait()
    empty.let_workers_run(is_allowed=False)
    done = empty.run("replace", "m2", "ana@m2 port=2300")
    assert done.returncode == 0, done
    assert [one.target for one in empty.kept().hosts] == ["m1", "ana@m2"]


def test_down_keeps_the_record_of_a_machine_that_is_away(world):
    world.machines["m2"].cut_off()
    done = world.run("down")
    assert done.returncode == 1, done
    assert world.states()["m1"] == {}
    assert world.kept().removed == (0,)
    assert str(cluster_record.file_of(world.environ)) in done.stderr
    world.machines["m2"].cut_off(is_away=False)
    assert world.run("down").returncode == 0
    assert world.kept() is None
    assert world.states() == {"m1": {}, "m2": {}, "m3": {}}
    assert len(world.machines["m1"].calls("rm")) == 1


COMMANDS = [["down"], ["stop"], ["stop", "1"], ["resume", "1"], ["resume"], ["replace", "1", "m3"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_one_command_at_a_time_changes_a_cluster(world, command):
    with cluster_record.held(world.kept(), world.environ):
        done = world.run(*command)
    assert done.returncode == 78, done
    assert world.states() == RUNNING


@pytest.mark.parametrize("name", [{}, {"RUN_NAME": "first"}])
def test_results_can_be_fetched_when_the_workers_are_removed(world, name):
    assert world.run("down").returncode == 0
    for machine, index in (("m1", 0), ("m2", 1)):
        there = world.machines[machine].folder / f"cluster-trainer/runs/first/worker-{index}"
        there.mkdir(parents=True)
        (there / "result.json").write_text(machine)
    world.put("m2", 1, run="second")
    done = world.run("fetch", **name)
    assert done.returncode == 0, done
    here = [world.folder / f"runs/first/worker-{index}" for index in range(2)]
    assert [(one / "result.json").read_text() for one in here] == ["m1", "m2"]
    assert not (here[1] / "container.log").exists()  # the container belongs to another run


def test_the_lines_of_a_run_that_is_there_are_fetched(world):
    for machine, index in (("m1", 0), ("m2", 1)):
        there = world.machines[machine].folder / f"cluster-trainer/runs/first/worker-{index}"
        there.mkdir(parents=True)
    world.keep()
    folders = tuple(str(world.machines[one].folder / "cluster-trainer") for one in ("m1", "m2"))
    cluster_record.write(replace(world.kept(), folders=folders), world.environ)
    assert world.run("fetch").returncode == 0
    assert (world.folder / "runs/first/worker-1/container.log").exists()


@pytest.mark.long
def test_logs_stop_no_worker(world):
    world.put("m2", 1, "exited")
    (world.machines["m1"].folder / "dies").touch()
    assert world.run("logs").returncode == 0
    assert not world.machines["m2"].calls("stop")
    world.put("m1", 0)
    (world.machines["m1"].folder / "dies").touch()
    assert world.run("attach").returncode == 1
    assert world.machines["m2"].calls("stop")


def test_a_worker_that_cannot_be_removed_yet_is_replaced_by_the_same_command_later(empty):
    assert empty.run("up", HOSTS="ana@m1 ana@m2").returncode == 0
    record = empty.kept()
    empty.machines["m1"].fail("rm")
    done = empty.run("up", HOSTS="ana@m1 ana@m2")
    assert done.returncode == 1, done
    assert "ana@m1: it failed" in done.stderr
    assert empty.kept() == record
    empty.machines["m1"].mend("rm")
    done = empty.run("up", HOSTS="ana@m1 ana@m2")
    assert done.returncode == 0, done


def test_a_machine_never_pulls_an_image_of_that_name(empty):
    assert empty.run("up", HOSTS="ana@m1 ana@m2").returncode == 0
    calls = empty.machines["m1"].calls("run")
    assert len(calls) == 2
    assert all(call[1:3] == ["--pull", "never"] for call in calls)


def test_an_image_that_is_named_by_its_digest_is_refused_before_it_is_sent(empty):
    done = empty.run("up", HOSTS="ana@m1", IMAGE="i@sha256:00")
    assert done.returncode == 78, done
    assert 'IMAGE: received "i@sha256:00"; accepted: a name with a tag' in done.stderr
    assert not empty.machines["m1"].calls("load")


def test_each_of_two_workers_of_a_machine_is_removed_once_if_one_does_not_start(empty):
    """Docker refuses to remove a container that is being removed."""
    first = empty.machines["m1"]
    first.fail("detached")
    done = empty.run("up", HOSTS="ana@m1 ana@m1 port=2300")
    assert done.returncode == 1, done
    asked = [" ".join(call) for call in first.calls("ps") if "--quiet" in call]
    for service in ("worker-0", "worker-1"):
        assert sum(f"label=com.docker.compose.service={service}" in one for one in asked) == 1


def test_docker_connects_to_machines_by_the_same_ssh_options(tmp_path):
    """A connection that Docker shares with others would end with the first of its commands."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\necho "$@" >&2\nexit 255\n')
    ssh.chmod(0o755)
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nexec ssh -o ConnectTimeout=30 -T -- "${2#ssh://}" docker dial\n')
    docker.chmod(0o755)
    given = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    said = Machine(Host("ana@m1"), 0).engine.ask("ps", environ=given).stderr
    assert said == f"{' '.join(OPTIONS)} -o ConnectTimeout=30 -T -- ana@m1 docker dial\n"


@pytest.mark.long
def test_a_start_that_is_refused_leaves_the_newest_run_as_it_is(world):
    assert world.run("down").returncode == 0
    (world.folder / "train.py").touch()
    tar = world.folder / "machines/bin/tar"
    tar.write_text("#!/bin/sh\nexit 2\n")
    tar.chmod(0o755)
    script = {"SCRIPT": str(world.folder / "train.py"), "HOSTS": "ana@m1"}
    assert world.run("up", **script).returncode == 78
    latest = world.folder / "runs/latest"
    assert latest.readlink().name == "first"
    tar.unlink()
    assert world.run("up", **script).returncode == 0
    assert latest.readlink().name == world.kept().run != "first"
