"""The folder for runs and code on a machine."""

import shutil

import pytest

pytestmark = pytest.mark.slow

HOSTS = "ana@m1 ana@m2"


def folders(world):
    """Return the folder of the cluster on each machine, as its name below the home folder."""
    return [place.rpartition("/")[2] for place in world.kept().folders]


def ended(world, **changes):
    """Let the workers of a cluster end."""
    world.keep(**changes)
    world.put("m1", 0, "exited")
    world.put("m2", 1, "exited")


def test_a_clone_of_this_repository_in_the_home_folder_stays_untouched(empty):
    clone = empty.machines["m1"].folder / "cluster-trainer"
    (clone / "runs/first/worker-0").mkdir(parents=True)
    done = empty.run("up", HOSTS=HOSTS, RUN_NAME="first")
    assert done.returncode == 0, done
    assert folders(empty) == ["cluster-trainer-runs"] * 2
    assert (empty.machines["m1"].folder / "cluster-trainer-runs/runs/first/worker-0").is_dir()
    assert [one.name for one in clone.iterdir()] == ["runs"]


@pytest.mark.long
def test_a_run_resumes_in_the_same_folder_although_there_is_a_clone(empty):
    assert empty.run("up", HOSTS=HOSTS, RUN_NAME="first").returncode == 0
    (empty.machines["m1"].folder / "cluster-trainer/runs/first/worker-0").mkdir(parents=True)
    for more in ({}, {"HOSTS": HOSTS}):
        done = empty.run("resume", **more)
        assert done.returncode == 0, done
        assert folders(empty) == ["cluster-trainer-runs"] * 2


@pytest.mark.long
@pytest.mark.parametrize("command", ["resume", "up"])
def test_a_run_of_an_earlier_version_stays_in_the_folder_it_has(world, command):
    ended(world)
    for more in ({"HOSTS": HOSTS}, {"HOSTS": "m1 ana@m3"}):  # the second time, by the new record
        done = world.run(command, RUN_NAME="first", **more)
        assert done.returncode == 0, done
        assert folders(world) == ["cluster-trainer"] * 2


@pytest.mark.long
def test_a_machine_that_comes_to_a_run_of_an_earlier_version_has_the_same_folder(world):
    done = world.run("replace", "ana@m2", "ana@m3")
    assert done.returncode == 0, done
    assert folders(world) == ["cluster-trainer"] * 2
    again = world.run("replace", "ana@m2", "ana@m3")  # it is known by its name
    assert "is one of the machines already" in again.stdout


def test_a_folder_in_the_home_folder_can_be_given(empty):
    assert empty.run("up", HOSTS="ana@m1 dir=~/a/b ana@m2").returncode == 0
    assert folders(empty) == ["b", "cluster-trainer-runs"]
    assert (empty.machines["m1"].folder / "a/b/runs").is_dir()


@pytest.mark.parametrize("options", ["", " dir=~/a/b"])
def test_results_are_fetched_after_the_workers_are_removed(empty, options):
    assert empty.run("up", HOSTS=f"ana@m1{options}").returncode == 0
    run, folder = empty.kept().run, empty.kept().folders[0]
    (empty.machines["m1"].folder / folder / f"runs/{run}/worker-0/result.json").write_text("{}")
    assert empty.run("down").returncode == 0
    done = empty.run("fetch")
    assert done.returncode == 0, done
    assert (empty.folder / f"runs/{run}/worker-0/result.json").exists()


def test_results_are_fetched_into_a_folder_of_all_runs_that_was_removed(empty):
    assert empty.run("up", HOSTS="ana@m1").returncode == 0
    shutil.rmtree(empty.folder / "runs")
    done = empty.run("fetch")
    assert done.returncode == 0, done
    assert (empty.folder / "runs" / empty.kept().run / "worker-0").is_dir()


@pytest.mark.long
def test_results_are_not_fetched_into_a_file(empty):
    assert empty.run("up", HOSTS="ana@m1").returncode == 0
    shutil.rmtree(empty.folder / "runs")
    (empty.folder / "runs").touch()
    done = empty.run("fetch")
    assert (done.returncode, "Traceback" in done.stderr) == (78, False), done
