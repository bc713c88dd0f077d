"""Paths that workers could decide by what they write are refused."""

import pytest

from local_cluster.settings.given import ROOT
from local_cluster.settings.mounts import problems


@pytest.fixture
def refused(tmp_path):
    """Return the variables that are refused, with the runs in a folder of the test's."""
    for name in ("runs/x", "data", "code"):
        (tmp_path / name).mkdir(parents=True)

    def of(runs="runs", overlays=(), **mounted):
        written = {"RUNS_DIR": tmp_path / runs}
        paths = {name: str(tmp_path / path) for name, path in mounted.items()}
        files = [str(tmp_path / file) for file in overlays]
        found = problems(written, paths, files, tmp_path / "state")
        return [sentence.partition(":")[0] for sentence in found]

    return of


def test_ordinary_paths_are_taken(refused, tmp_path):
    (tmp_path / "link").symlink_to("code")
    assert refused(DATA_DIR="data", SCRIPT="link/train.py", WORKSPACE_DIR="link") == []
    assert refused(DATA_DIR="runs/data", WORKSPACE_DIR="runs/code", overlays=["more.yaml"]) == []


@pytest.mark.parametrize("place", ["", "state", ROOT, ROOT.parent])
def test_workers_may_not_write_what_decides_about_this_machine(refused, place):
    assert {*refused(runs=place)} == {"RUNS_DIR"}


def test_compose_files_may_not_lie_where_workers_write(refused, tmp_path):
    (tmp_path / "theirs").symlink_to("runs")
    (tmp_path / "runs/link.yaml").symlink_to("../code/more.yaml")
    for file in ("runs/x/more.yaml", "theirs/more.yaml", "runs/link.yaml"):
        assert refused(overlays=[file]) == ["OVERLAYS"]


@pytest.mark.parametrize("name", ["DATA_DIR", "WORKSPACE_DIR", "SCRIPT"])
def test_a_link_that_a_worker_can_leave_leads_to_no_mount(refused, tmp_path, name):
    (tmp_path / "runs/x/code").symlink_to("/")
    (tmp_path / "other").symlink_to("runs/x")
    for path in ("runs/x/code", "runs/x/code/etc", "other/code/etc"):
        assert refused(**{name: path}) == [name]
