"""The working folder of a script whose own folder is read-only."""

import os
from pathlib import Path

import pytest

from entrypoint.errors import EXIT_NOT_EXECUTABLE
from entrypoint.log import Log
from entrypoint.supervision.child.command import become
from entrypoint.supervision.workspace import mirror
from entrypoint.supervision.workspace import working_folder as module
from entrypoint.supervision.workspace.working_folder import working_folder

TRAIN = ("python", "train.py")


@pytest.fixture
def writable():
    """The folders that can be written, besides the worker's own."""
    return set()


@pytest.fixture
def workspace(tmp_path, monkeypatch, writable):
    """A read-only workspace, which is the working directory."""
    folder = tmp_path / "workspace"
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").touch()
    (folder / "data/a.csv").write_text("a")
    monkeypatch.setattr(module, "WORKSPACE", folder)
    access = os.access

    def is_allowed(path, mode):  # root may write everywhere
        return Path(path) in writable if mode == os.W_OK else access(path, mode)

    monkeypatch.setattr(os, "access", is_allowed)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def find(tmp_path):
    def of(*command, worker="worker-0"):
        given = {"TRAINER_RUN_DIR": str(tmp_path / "run")}
        return working_folder(command, given, Log(worker=worker))

    return of


@pytest.fixture
def said(capfd):
    return lambda: "".join(capfd.readouterr())


def files(folder):
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


def test_it_is_the_workers_own_and_shows_what_is_in_the_scripts(workspace, find, tmp_path):
    found = find(*TRAIN, worker="worker-1")
    assert found == tmp_path / "run/worker-1/workspace"
    assert (found / "data/a.csv").read_text() == "a"
    assert (found / "train.py").resolve().parent == workspace


def test_walks_enter_its_folders_and_the_script_can_write_there(workspace, find):
    (workspace / "data/more").mkdir()
    (workspace / "data/more/b.csv").touch()
    found = find(*TRAIN)
    (found / "data/more/c.csv").touch()
    assert files(found) == ["data/a.csv", "data/more/b.csv", "data/more/c.csv", "train.py"]
    assert files(workspace) == ["data/a.csv", "data/more/b.csv", "train.py"]


@pytest.mark.parametrize("command", [TRAIN, ("python", "../train.py"), ("./train.py",)])
def test_in_a_subfolder_it_is_the_same_one_with_those_above(workspace, find, monkeypatch, command):
    (workspace / "sub").mkdir()
    (workspace / "sub/train.py").touch()
    monkeypatch.chdir(workspace / "sub")
    found = find(*command)
    assert found.parts[-3:] == ("worker-0", "workspace", "sub")
    assert (found / "../data/a.csv").read_text() == "a"


def test_each_start_shows_its_own_folder(workspace, find, monkeypatch):
    (workspace / "sub").mkdir()
    for folder in (workspace, workspace / "sub"):
        (folder / "train.py").write_text(str(folder))
    monkeypatch.chdir(workspace / "sub")
    assert (find(*TRAIN) / "train.py").read_text() == str(workspace / "sub")
    monkeypatch.chdir(workspace)
    assert (find(*TRAIN) / "train.py").read_text() == str(workspace)


def test_what_the_script_has_written_stays_at_the_next_start(workspace, find, said):
    found = find(*TRAIN)
    (found / "best.keras").write_text("mine")
    (workspace / "data/a.csv").unlink()
    (workspace / "data").rmdir()
    (workspace / "new.csv").touch()
    assert find(*TRAIN) == found
    assert (found / "best.keras").read_text() == "mine"
    assert sorted(one.name for one in found.iterdir()) == ["best.keras", "new.csv", "train.py"]
    assert "WARNING" not in said()


def test_the_users_own_file_comes_before_one_of_an_earlier_start(workspace, find, tmp_path, said):
    found = find(*TRAIN)
    (found / "config.json").write_text("written")
    (found / "logs").write_text("written")
    (workspace / "config.json").write_text("the user's")
    (workspace / "logs").mkdir()
    assert find(*TRAIN) == found
    assert (found / "config.json").read_text() == "the user's"
    assert (found / "logs").is_dir()
    (aside,) = (tmp_path / "run/worker-0/workspace-earlier").iterdir()
    assert {one.name: one.read_text() for one in aside.iterdir()} == dict.fromkeys(
        ("config.json", "logs"), "written"
    )
    text = said()
    assert str(workspace / "config.json") in text
    assert str(aside / "config.json") in text


def test_what_python_compiles_is_nobodys(workspace, find, said):
    found = find(*TRAIN)
    for folder in (found, workspace):
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__/net.pyc").touch()
    assert not (find(*TRAIN) / "__pycache__/net.pyc").is_symlink()
    assert "WARNING" not in said()


def test_two_starts_in_a_second_move_aside_into_two_folders(workspace, find, tmp_path, monkeypatch):
    monkeypatch.setattr(module.time, "strftime", lambda _: "now")
    for name in ("a", "b"):
        (find(*TRAIN) / name).touch()
        (workspace / name).touch()
    find(*TRAIN)
    earlier = tmp_path / "run/worker-0/workspace-earlier"
    assert files(earlier) == ["now-2/b", "now/a"]


def test_a_folder_that_holds_too_many_files_is_linked_as_a_whole_and_that_is_said(
    workspace, find, monkeypatch, said
):
    monkeypatch.setattr(mirror, "MOST_FILES", 3)
    (workspace / "many/of").mkdir(parents=True)
    for number in range(3):
        (workspace / f"many/of/{number}").touch()
        (workspace / f"beside-{number}").touch()  # any number of them
    found = find(*TRAIN)
    assert (found / "many").is_symlink()
    assert not (found / "data").is_symlink()
    assert (found / "beside-2").is_symlink()
    text = said()
    assert f"WARNING worker-0 {found / 'many'} " in text
    assert "data" not in text


def test_folders_that_can_be_written_or_hold_no_data_are_linked_as_a_whole(
    workspace, find, writable, said
):
    for name in ("out", ".git"):
        (workspace / name).mkdir()
    writable.add(workspace / "out")
    found = find(*TRAIN)
    (found / "out/model.keras").touch()
    assert (workspace / "out/model.keras").exists()
    assert (found / ".git").is_symlink()
    assert ".git, out" in said()


def test_a_runs_folder_within_is_not_mirrored_into_itself(workspace, tmp_path):
    given = {"TRAINER_RUN_DIR": str(workspace / "runs/a")}
    found = working_folder(TRAIN, given, Log(worker="worker-0"))
    assert working_folder(TRAIN, given, Log(worker="worker-0")) == found
    assert (found / "runs/a").is_symlink()
    assert tmp_path in found.parents


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(
    "command",
    [
        ("bash",),
        ("bash", "-c", "ls"),
        ("python", "-m", "train"),
        ("python", "/etc/hosts"),
        ("python", "-c", "x" * 500),
    ],
)
def test_a_command_without_a_file_there_stays_where_it_is(find, command, said):
    assert find(*command) is None
    assert said() == ""


def test_a_script_is_known_by_its_whole_path(workspace, find):
    assert find("python", str(workspace / "train.py"))


def test_a_folder_that_can_be_written_is_used_as_it_is(workspace, find, writable):
    writable.add(workspace)
    assert find(*TRAIN) is None


@pytest.mark.usefixtures("workspace")
def test_where_no_run_can_be_written_the_script_stays_and_that_is_said(find, tmp_path, said):
    (tmp_path / "run").touch()
    assert find(*TRAIN) is None
    text = said()
    assert "WARNING worker-0" in text
    assert str(tmp_path / "run") in text


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(("worker", "times"), [("worker-0", 1), ("worker-1", 0)])
def test_the_chief_alone_says_where_the_command_runs(find, said, worker, times):
    find(*TRAIN, worker=worker)
    assert said().count("is read-only") == times


def test_a_command_whose_folder_is_gone_does_not_start_and_says_so(tmp_path, said):
    assert become(["true"], {}, tmp_path / "gone") == EXIT_NOT_EXECUTABLE
    assert str(tmp_path / "gone") in said()
