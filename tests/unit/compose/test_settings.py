"""A cluster's settings, read from variables: defaults, refusals, all problems at once."""

import os
from datetime import datetime

import pytest

from local_cluster.messages import EndError
from local_cluster.settings.given_variables import ROOT, User
from local_cluster.settings.settings import read

NOW = datetime(2026, 11, 22, 9, 5, 7)  # noqa: DTZ001  local time


def settings(**environ):
    return read({name: str(text) for name, text in environ.items()}, NOW)


def problems(**environ):
    with pytest.raises(EndError) as caught:
        settings(**environ)
    assert caught.value.code == 78
    return caught.value.sentences


def test_defaults():
    found = settings()
    assert (found.workers, found.services) == (2, ["worker-0", "worker-1"])
    assert (found.network, found.image, found.grace_seconds) == (
        "bridge",
        "cluster-trainer:cpu",
        10,
    )
    assert (found.project, found.run_name) == ("cluster-trainer", "20261122-090507")
    assert found.folder.path == ROOT / "runs/20261122-090507"
    assert (found.data, found.workspace, found.script, found.overlays) == ("", "", "", ())
    assert found.user == User(str(os.getuid()), str(os.getgid()))


def test_an_empty_variable_is_not_given():
    assert settings(WORKERS="", RUN_NAME="", IMAGE="", GRACE_SECONDS="", RUN_UID="") == settings()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("WORKERS", "0"),
        ("WORKERS", "9"),
        ("WORKERS", "10"),
        ("WORKERS", "1\n"),
        ("WORKERS", "\N{ARABIC-INDIC DIGIT ONE}"),
        ("NETWORK", "wifi"),
        ("NETWORK", "bridge|host"),
        ("RUN_NAME", "../elsewhere"),
        ("RUN_NAME", "latest"),
        ("RUN_NAME", "a b"),
        ("RUN_NAME", ".hidden"),
        ("RUN_NAME", "a\n"),
        ("COMPOSE_PROJECT_NAME", "Mine"),
        ("COMPOSE_PROJECT_NAME", "my project"),
        ("COMPOSE_PROJECT_NAME", "../mine"),
        ("GRACE_SECONDS", "-1"),
        ("GRACE_SECONDS", "1.5"),
        ("GRACE_SECONDS", "2"),
        ("RUN_UID", "me"),
        ("RUN_GID", "-1"),
        ("WORKSPACE_DIR", "no/where"),
        ("DATA_DIR", "./nowhere"),
        ("OVERLAYS", "no.yaml"),
        ("SCRIPT", "no/where.py"),
        ("SCRIPT", "compose"),
        ("SCRIPT", "Makefile"),
    ],
)
def test_what_makes_no_cluster_is_refused_by_its_name(name, text):
    (sentence,) = problems(**{name: text})
    assert sentence.startswith(f'{name}: received "{text}"; accepted: ')


def test_all_problems_are_told_at_once(tmp_path):
    sentences = problems(WORKERS=9, NETWORK="wifi", OVERLAYS=f"a.yaml {tmp_path}", TRAINER_EPOCH=3)
    names = [sentence.partition(":")[0] for sentence in sentences]
    assert sorted(names) == ["NETWORK", "OVERLAYS", "OVERLAYS", "TRAINER_EPOCH", "WORKERS"]


def test_the_hosts_network_has_two_workers():
    assert settings(NETWORK="host", WORKERS=2).workers == 2
    assert "NETWORK=host" in problems(NETWORK="host", WORKERS=3)[0]


def test_names_that_only_begin_like_a_bad_one_are_good():
    assert settings(RUN_NAME="latest-2").run_name == "latest-2"


def test_folders_are_relative_to_where_the_command_was_typed(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "more.yaml").touch()
    monkeypatch.chdir(tmp_path)
    found = settings(WORKSPACE_DIR="mine", DATA_DIR="mine", OVERLAYS="more.yaml", RUNS_DIR="new")
    assert found.workspace == found.data == str(tmp_path / "mine")
    assert found.overlays == (str((tmp_path / "more.yaml").resolve()),)
    assert found.runs == tmp_path / "new"


def test_a_script_outside_of_the_workspace_is_refused(tmp_path):
    script = tmp_path / "train.py"
    script.touch()
    (tmp_path / "mine").mkdir()
    (sentence,) = problems(SCRIPT=script, WORKSPACE_DIR=tmp_path / "mine")
    assert sentence.startswith(f'SCRIPT: received "{script}"; accepted: a file in WORKSPACE_DIR')
    assert settings(SCRIPT=script, WORKSPACE_DIR=tmp_path).script == str(script)


def test_a_data_dir_that_is_no_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EndError, match='DATA_DIR: received "shared"'):
        settings(DATA_DIR="shared")


def test_under_sudo_results_belong_to_the_person_at_the_keyboard():
    sudo = {"SUDO_UID": 1001, "SUDO_GID": 1002}
    assert settings(**sudo).user == User("1001", "1002")
    assert settings(**sudo, RUN_UID=7, RUN_GID=8).user == User("7", "8")
