"""The run that the containers of `docker compose up` join."""

import os
import re
from datetime import datetime

import pytest

from local_cluster.commands import begin as begin_module
from local_cluster.commands.begin import begin
from local_cluster.messages import EndError

OWNER = {"RUN_UID": str(os.getuid()), "RUN_GID": str(os.getgid()), "COMPOSE_PROJECT_NAME": "mine"}


@pytest.fixture
def run(tmp_path):
    """Begin a run in the container of a number, and return the run's folder."""
    runs = tmp_path / "runs"

    def of(container=0, **environ):
        assert begin(OWNER | environ, runs, tmp_path / f"own-run-{container}") == 0
        name = (runs / ".run-of-mine").read_text().strip()
        assert name.startswith("/runs/")
        assert (runs / "latest").resolve() == runs / name[len("/runs/") :]
        return runs / name[len("/runs/") :]

    return of


def finish(folder, *workers, mark="DONE"):
    for worker in workers:
        (folder / worker).mkdir(exist_ok=True)
        (folder / worker / mark).touch()


def test_a_run_is_named_by_the_clock(run):
    assert re.fullmatch(r"\d{8}-\d{6}", run().name)


def test_two_that_begin_in_the_same_second_have_a_folder_each(run, monkeypatch):
    class Clock(datetime):
        @classmethod
        def now(cls):
            return cls(2026, 11, 22, 9, 5, 7)

    monkeypatch.setattr(begin_module, "datetime", Clock)
    names = [run(container=number).name for number in range(3)]
    assert names == ["20261122-090507", "20261122-090507-2", "20261122-090507-3"]
    assert run(container=1).name == names[1]


def test_a_link_in_the_place_of_its_files_is_not_followed(run, tmp_path):
    """`begin` runs as root, and runs/ may belong to any user."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "runs").mkdir()
    for name in (".run-of-mine", ".new-.run-of-mine", ".new-run-of-mine", "latest"):
        (tmp_path / "runs" / name).symlink_to(mine)
    run()
    assert mine.read_text() == "mine"
    (tmp_path / "runs/x").symlink_to(tmp_path)
    with pytest.raises(EndError) as caught:
        run(RUN_NAME="x")
    assert caught.value.code == 78


def test_containers_that_start_again_go_on_with_their_run(run):
    first = run()
    finish(first, "worker-0")
    (first / "worker-1").mkdir()
    assert run() == first


@pytest.mark.parametrize("mark", ["DONE", "ENDED"])
def test_a_run_that_is_done_is_followed_by_another(run, mark):
    first = run(RUN_NAME="first")
    finish(first, "worker-0", "worker-1", mark=mark)
    assert run() != first


def test_new_containers_begin_a_new_run(run):
    first = run(RUN_NAME="first")
    assert run(container=1) != first


def test_a_name_that_is_given_is_taken(run):
    assert run(RUN_NAME="mine").name == "mine"
    finish(run(RUN_NAME="mine"), "worker-0")
    assert run(RUN_NAME="mine").name == "mine"


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"TRAINER_EPOCH": "3"}, "TRAINER_EPOCH"),
        ({"RUN_NAME": "../out"}, "RUN_NAME"),
        ({"RUN_UID": "me"}, "RUN_UID"),
        ({"TRAINER_RUN_DIR": "/runs/x"}, "TRAINER_RUN_DIR"),
    ],
)
def test_mistakes_are_refused_before_anything_is_made(tmp_path, environ, name):
    with pytest.raises(EndError) as caught:
        begin(OWNER | environ, tmp_path, tmp_path / "own-run")
    assert caught.value.code == 78
    assert caught.value.sentences[0].startswith(f"{name}: ")
    assert list(tmp_path.iterdir()) == []


def test_a_cpu_image_under_a_gpu_images_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(begin_module, "version", lambda _: "2.21.0")
    with pytest.raises(EndError, match=r"IMAGE: .*cluster-trainer:gpu"):
        begin(OWNER | {"IMAGE": "cluster-trainer:gpu"}, tmp_path / "runs", tmp_path / "own-run")
    assert begin(OWNER | {"IMAGE": "mine:1"}, tmp_path / "runs", tmp_path / "own-run") == 0


ALL = ",".join(f"worker-{index}" for index in range(2, 8))


@pytest.mark.parametrize("profiles", ["", "worker-2", "worker-2,worker-3", ALL])
def test_further_workers_are_profiles(run, profiles):
    hosts = ",".join(filter(None, ["worker-0,worker-1", profiles]))
    run(COMPOSE_PROFILES=profiles, WORKER_HOSTS=hosts)
    run(COMPOSE_PROFILES="tensorboard", WORKER_HOSTS="a:1,b:1")  # CLUSTER_HOSTS


@pytest.mark.parametrize(
    "profiles",
    [
        "tensorboard",
        "worker-2,tensorboard",
        "worker-3",
        "worker-3,worker-2",
        "*",
        "worker-2,",
        f"{ALL},worker-8",
    ],
)
def test_other_profiles_would_be_workers_that_never_come(tmp_path, profiles):
    given = {"COMPOSE_PROFILES": profiles, "WORKER_HOSTS": f"worker-0,worker-1,{profiles}"}
    with pytest.raises(EndError) as caught:
        begin(OWNER | given, tmp_path / "runs", tmp_path / "own-run")
    assert caught.value.sentences[0].startswith(f'COMPOSE_PROFILES: received "{profiles}"')
    assert not (tmp_path / "runs").exists()
