"""Paths that a worker could redirect by writing files are refused."""

import os
import subprocess
import sys

import pytest

from local_cluster.settings import mounts
from local_cluster.settings.given_variables import ROOT
from local_cluster.settings.mounts import problems

PROGRAM = ROOT / "compose/cluster.py"


@pytest.fixture
def refused(tmp_path):
    """Return the names of the variables that are refused, for paths in the test's folder."""
    for name in ("runs/x", "data", "code"):
        (tmp_path / name).mkdir(parents=True)

    def of(runs="runs", overlays=(), state="state", **mounted):
        written = {"RUNS_DIR": tmp_path / runs}
        paths = {name: str(tmp_path / path) for name, path in mounted.items()}
        files = [str(tmp_path / file) for file in overlays]
        found = problems(written, paths, files, tmp_path / state)
        return [sentence.partition(":")[0] for sentence in found]

    return of


def test_ordinary_paths_are_taken(refused, tmp_path):
    (tmp_path / "link").symlink_to("code")
    assert refused(DATA_DIR="data", SCRIPT="link/train.py", WORKSPACE_DIR="link") == []
    assert refused(DATA_DIR="runs/data", WORKSPACE_DIR="runs/code", overlays=["more.yaml"]) == []


@pytest.mark.parametrize("name", ["DATA_DIR", "WORKSPACE_DIR", "SCRIPT"])
def test_a_folder_has_no_colon_in_its_path(refused, name):
    assert refused(**{name: "a:b/c.py"}) == [name]
    assert refused(**{name: "a b/ä$'\"/c.py"}) == []


def test_a_script_may_have_a_colon_in_its_own_name(refused):
    assert refused(SCRIPT="code/a:b.py") == []


@pytest.mark.parametrize(
    "place",
    [
        *("", "state", "state/runs", "state/new/place", ROOT, ROOT.parent),
        *(ROOT / name for name in ("compose", "compose/workspace", "scripts/new", ".git/hooks")),
        *(ROOT / name for name in (".build", ".build/report", ".build/data/../report")),
    ],
)
def test_workers_may_not_write_what_decides_about_this_machine(refused, place):
    assert {*refused(runs=place)} == {"RUNS_DIR"}


@pytest.mark.parametrize("place", ["runs", "runs/mine", "my-results", ".build/data"])
def test_a_folder_of_the_users_own_in_the_repository_is_taken(refused, place):
    assert refused(runs=ROOT / place) == []


def test_every_folder_of_the_repository_is_known():
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    folders = {file.partition("/")[0] for file in listed if "/" in file}
    assert folders - {"runs"} <= {*mounts.OF_THE_REPOSITORY}


def test_compose_files_may_not_lie_where_workers_write(refused, tmp_path):
    (tmp_path / "theirs").symlink_to("runs")
    (tmp_path / "runs/link.yaml").symlink_to("../code/more.yaml")
    for file in ("runs/x/more.yaml", "theirs/more.yaml", "runs/link.yaml"):
        assert refused(overlays=[file]) == ["OVERLAYS"]


@pytest.mark.parametrize("name", ["RUNS_DIR", "DATA_DIR", "WORKSPACE_DIR", "SCRIPT"])
def test_a_link_that_a_worker_can_leave_leads_to_no_mount(refused, tmp_path, name):
    (tmp_path / "runs/x/code").symlink_to("/")
    (tmp_path / "other").symlink_to("runs/x")
    for path in ("runs/x/code", "runs/x/code/etc", "other/code/etc"):
        assert refused(**{name: path}) == [name]


def test_nor_to_what_runs_were_started_with(refused, tmp_path):
    (tmp_path / "runs/x/state").symlink_to(tmp_path / "code")
    assert refused(state="runs/x/state/cluster-trainer") == ["XDG_STATE_HOME"]


def test_nor_does_one_of_a_run_in_the_default_folder(refused, tmp_path, monkeypatch):
    monkeypatch.setattr(mounts, "DEFAULT_RUNS", tmp_path / "default")
    (tmp_path / "default/x").mkdir(parents=True)
    (tmp_path / "default/x/link").symlink_to("/")
    assert refused(RUNS_DIR="default/x/link/etc") == ["RUNS_DIR"]


@pytest.mark.parametrize(
    "command", [["up"], ["tensorboard"], ["report"], ["data", "prepare", "tf_flowers"]]
)
def test_no_command_follows_a_link_that_a_worker_left_in_the_data(tmp_path, command):
    (tmp_path / "docker").write_text('#!/bin/sh\necho "docker $*"\n')
    (tmp_path / "docker").chmod(0o755)
    for name in ("data", "mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "data/link").symlink_to("../mine")
    places = {"RUNS_DIR": "data/link", "DATA_DIR": "data", "XDG_STATE_HOME": f"{tmp_path}/state"}
    done = subprocess.run(
        [sys.executable, PROGRAM, *command],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", **places},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78, done
    assert f'RUNS_DIR: received "{tmp_path}/data/link"' in done.stderr
    assert "docker run" not in done.stdout
    assert not list((tmp_path / "mine").iterdir())
