"""Where a script runs whose own folder is read-only."""

import os

import pytest

from entrypoint.log import Log
from entrypoint.supervision import working_folder as module
from entrypoint.supervision.working_folder import working_folder

TRAIN = ("python", "train.py")


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """A workspace that cannot be written, as the working directory."""
    folder = tmp_path / "workspace"
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").touch()
    (folder / "data/a.csv").write_text("a")
    monkeypatch.setattr(module, "WORKSPACE", folder)
    monkeypatch.setattr(os, "access", lambda path, _: path != folder)  # root may write any
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def find(tmp_path):
    def of(*command, worker="worker-0"):
        given = {"TRAINER_RUN_DIR": str(tmp_path / "run")}
        return working_folder(command, given, Log(worker=worker))

    return of


def test_it_is_the_workers_own_and_shows_what_is_in_the_scripts(workspace, find, tmp_path):
    found = find(*TRAIN, worker="worker-1")
    assert found == tmp_path / "run/worker-1/workspace"
    assert (found / "data/a.csv").read_text() == "a"
    assert (found / "train.py").resolve().parent == workspace


def test_what_the_script_has_written_stays_at_the_next_start(workspace, find):
    found = find(*TRAIN)
    (found / "best.keras").write_text("mine")
    (workspace / "best.keras").write_text("theirs")
    (workspace / "data/a.csv").unlink()
    (workspace / "data").rmdir()
    (workspace / "new.csv").touch()
    assert find(*TRAIN) == found
    assert (found / "best.keras").read_text() == "mine"
    assert sorted(one.name for one in found.iterdir()) == ["best.keras", "new.csv", "train.py"]


@pytest.mark.parametrize(
    "command",
    [("bash",), ("bash", "-c", "ls"), ("python", "-m", "train"), ("python", "/etc/hosts")],
)
def test_a_command_without_a_file_there_stays_where_it_is(workspace, find, command):
    assert workspace.is_dir()
    assert find(*command) is None


def test_a_script_is_known_by_its_whole_path(workspace, find):
    assert find("python", str(workspace / "train.py"))


def test_a_folder_that_can_be_written_is_used_as_it_is(workspace, find, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: True)
    assert find(*TRAIN) is None
    assert workspace.is_dir()


def test_where_no_run_can_be_written_the_script_stays_and_that_is_said(
    workspace, find, tmp_path, capsys
):
    (tmp_path / "run").touch()
    assert find(*TRAIN) is None
    assert workspace.is_dir()
    assert "WARNING worker-0" in "".join(capsys.readouterr())
