"""Answers and errors of the container engine. The docker command is a script here."""

import pytest

from local_cluster import docker_engine
from local_cluster.messages import EndError
from local_cluster.settings.given_variables import User


@pytest.fixture
def docker(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def says(script):
        (tmp_path / "docker").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "docker").chmod(0o755)

    return says


def refusal(image):
    with pytest.raises(EndError) as caught:
        docker_engine.refuse_missing(image)
    assert caught.value.code == 1
    return caught.value.sentences[0]


def test_an_image_that_is_not_here(docker):
    docker('echo "Error: No such image: $5" >&2; exit 1')
    assert refusal("a:b") == "there is no image a:b here; `make build` builds it."


def test_an_engine_that_does_not_answer_is_not_called_a_missing_image(docker):
    docker('echo "Cannot connect to the Docker daemon at unix:///x." >&2; exit 1')
    assert refusal("a:b") == "Cannot connect to the Docker daemon at unix:///x."


def test_no_docker_command(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "`make engine`" in refusal("a:b")


ME, ROOT = User("1000", "1000"), User("0", "0")


@pytest.mark.parametrize(
    ("option", "user", "named"),
    [
        ("seccomp,profile=default", ME, ""),
        ("rootless", ROOT, ""),
        ("rootless", ME, "RUN_UID, RUN_GID: received 1000 and 1000; accepted: 0 and 0"),
        ("userns", ME, "userns-remap"),
        ("userns", ROOT, "userns-remap"),
    ],
)
def test_an_engine_whose_users_are_others_is_refused(docker, option, user, named):
    docker(f"""echo '["name=apparmor","name={option}"]'""")
    if not named:
        docker_engine.refuse_other_users(user)
        return
    with pytest.raises(EndError) as caught:
        docker_engine.refuse_other_users(user)
    assert caught.value.code == 78
    assert named in caught.value.sentences[0]


@pytest.mark.parametrize(
    ("image", "label", "is_for_gpus"),
    [
        ("mine:1", "gpu", True),
        ("mine:1", "cpu,gpu", True),
        ("mine-without-gpu:1", "cpu", False),
        ("mine:1", "", False),
        ("mine:gpu", "", True),
    ],
)
def test_an_image_is_for_gpus_by_its_label_whatever_its_name(docker, image, label, is_for_gpus):
    docker(f"echo '{label}'")
    assert docker_engine.is_for_gpus(image) is is_for_gpus


def test_workers_are_told_by_their_numbers_and_nothing_else_is_one(docker):
    docker(
        'case "$1" in ps) echo 0a;; inspect) printf "%s running 0 %s then %s\\n" '
        "worker-1 0a 12 run-folder 0b - worker-0 0c -;; esac"
    )
    found = [
        docker_engine.WorkerContainer("worker-0", "running", 0, "0c", "then", "-"),
        docker_engine.WorkerContainer("worker-1", "running", 0, "0a", "then", "12"),
    ]
    assert docker_engine.Project("p").workers() == found


def test_what_shows_the_curves_is_no_part_of_a_cluster(docker):
    docker('printf "%s\\n" "0a worker-0" "0b tensorboard" "0c run-folder"')
    assert docker_engine.Project("p").running() == ["0a", "0c"]


def test_a_worker_of_several_machines_is_no_part_of_a_local_cluster(docker):
    docker('printf "%s\\n" "0a worker-0 " "0b worker-0 theirs" "0c worker-1 other"')
    assert docker_engine.Project("p").running() == ["0a"]
    assert docker_engine.Project("p", start="theirs").running() == ["0b"]


def test_the_engine_is_asked_about_one_project_alone(docker, tmp_path):
    docker(f'echo "$@" > {tmp_path}/asked')
    assert docker_engine.Project("mine").running() == []
    assert "label=com.docker.compose.project=mine" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(
    ("name", "setting"), [("default", "DOCKER_HOST"), ("prod", "the Docker context prod")]
)
def test_an_engine_elsewhere_is_refused_by_what_has_chosen_it(docker, tmp_path, name, setting):
    docker(
        f'case "$1" in context) echo {name} ssh://ana@m1;; '
        'create) echo "no such path" >&2; exit 1;; esac'
    )
    with pytest.raises(EndError) as caught:
        docker_engine.refuse_elsewhere("a:b", tmp_path)
    (sentence,) = caught.value.sentences
    assert sentence.startswith(f'{setting}: received "ssh://ana@m1", which cannot mount {tmp_path}')
