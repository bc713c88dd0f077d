"""Which run the containers of `docker compose up` take part in."""

import os
import re

import pytest

from local_cluster.commands import begin as begin_module
from local_cluster.commands.begin import begin
from local_cluster.messages import EndError

OWNER = {"RUN_UID": str(os.getuid()), "RUN_GID": str(os.getgid()), "COMPOSE_PROJECT_NAME": "mine"}


@pytest.fixture
def run(tmp_path):
    """Begin, in containers that are told apart by a number; return the run's folder."""
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
