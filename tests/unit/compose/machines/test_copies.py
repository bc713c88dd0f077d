"""What is copied to machines and from them; `ssh` runs the command here."""

import io
import os
import tarfile

import pytest

from local_cluster.messages import EndError
from machines import code_folder, results
from machines.facts import Facts
from machines.host import Host
from machines.kept import Kept
from machines.machine import Machine

MACHINE = Machine(Host("ana@m1"), 0)


@pytest.fixture(autouse=True)
def _ssh(tmp_path, monkeypatch):
    """An `ssh` that runs the last argument with a shell of this machine, and no docker."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ssh").write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    (programs / "docker").write_text("#!/bin/sh\nexit 1\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "code"
    (made / "package").mkdir(parents=True)
    (made / "package/part.py").write_text("x = 1\n")
    (made / "train.py").write_text("import package\n")
    (made / "train.py").chmod(0o755)
    (made / "link").symlink_to("train.py")
    return made


def facts_of(tmp_path):
    return Facts(MACHINE, {"dir": [str(tmp_path / "there is")]})


def test_a_folder_arrives_as_it_is(folder, tmp_path):
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("secret")
    (folder / "runs").mkdir()
    (folder / "runs/large").write_text("x")
    code = code_folder.pack(str(folder), folder / "runs")
    there = facts_of(tmp_path)
    assert code_folder.send(code, there) == ""
    assert code_folder.send(code, there) == ""  # it is there
    copy = tmp_path / "there is/code" / code.digest
    assert (copy / "package/part.py").read_text() == "x = 1\n"
    assert os.access(copy / "train.py", os.X_OK)
    assert (copy / "link").readlink().name == "train.py"
    assert not (copy / ".git").exists()
    assert not (copy / "runs").exists()
    assert code_folder.pack(str(copy), folder).digest == code.digest


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "train.py").write_text("import package # \n"),
        lambda folder: (folder / "train.py").rename(folder / "other.py"),
        lambda folder: (folder / "package/part.py").chmod(0o755),
        lambda folder: (folder / "new").symlink_to("train.py"),
    ],
)
def test_any_change_gives_another_digest(folder, change):
    before = code_folder.pack(str(folder), folder / "runs").digest
    change(folder)
    assert code_folder.pack(str(folder), folder / "runs").digest != before


def test_the_time_of_a_file_gives_no_other_digest(folder):
    before = code_folder.pack(str(folder), folder / "runs").digest
    os.utime(folder / "train.py", (1, 1))
    assert code_folder.pack(str(folder), folder / "runs").digest == before


def test_what_is_no_file_is_refused(folder):
    os.mkfifo(folder / "pipe")
    with pytest.raises(EndError, match="pipe"):
        code_folder.pack(str(folder), folder / "runs")


def test_a_folder_that_cannot_be_read_is_refused(folder, monkeypatch):
    scan = os.scandir

    def refuse(place):  # root can read everything
        if str(place).endswith("package"):
            raise PermissionError(13, "Permission denied", str(place))
        return scan(place)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(EndError, match="package"):
        code_folder.pack(str(folder), folder / "runs")


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home/first").mkdir(parents=True)
    return Kept("p", (MACHINE.host,), "first", str(tmp_path / "home"), (str(tmp_path),))


def test_results_come_home_and_links_do_not(tmp_path, home):
    there = tmp_path / "runs/first/worker-0"
    (there / "checkpoints").mkdir(parents=True)
    (there / "metrics.jsonl").write_text("{}\n")
    (there / "checkpoints/1.npz").write_bytes(b"x" * 3_000_000)
    (there / "link").symlink_to("/etc/passwd")
    assert results.fetch(MACHINE, str(tmp_path / "runs/first"), home) == ""
    here = tmp_path / "home/first/worker-0"
    assert (here / "metrics.jsonl").read_text() == "{}\n"
    assert (here / "checkpoints/1.npz").stat().st_size == 3_000_000
    assert not (here / "link").is_symlink()


def test_large_files_can_stay(tmp_path, home):
    there = tmp_path / "runs/first/worker-0"
    (there / "checkpoints").mkdir(parents=True)
    (there / "checkpoints/1.npz").write_bytes(b"x")
    (there / "metrics.jsonl").write_text("{}\n")
    without = ("checkpoints", "*.keras")
    assert results.fetch(MACHINE, str(tmp_path / "runs/first"), home, without) == ""
    assert [one.name for one in (tmp_path / "home/first/worker-0").iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize("name", ["worker-0/../../../out", "/out", "worker-1/out", "out"])
def test_a_machine_cannot_write_beside_the_workers_folder(tmp_path, home, name):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    (tmp_path / "a.tar").write_bytes(archive.getvalue())
    (tmp_path / "programs/tar").write_text(f"#!/bin/sh\ncat {tmp_path}/a.tar\n")
    (tmp_path / "programs/tar").chmod(0o755)
    before = {*tmp_path.rglob("*")}
    assert results.fetch(MACHINE, str(tmp_path), home) == ""
    assert {*tmp_path.rglob("*")} == before


def test_a_folder_that_is_gone_is_said(tmp_path, home):
    assert results.fetch(MACHINE, str(tmp_path / "gone"), home).startswith("ana@m1: ")


def test_a_folder_whose_copy_was_cut_off_is_not_there(folder, tmp_path):
    code = code_folder.pack(str(folder), folder / "runs")
    ssh = tmp_path / "programs/ssh"
    whole = ssh.read_text()
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nhead -c 1024 | sh -c "$last"\n')
    there = facts_of(tmp_path)
    assert "connection was lost" in code_folder.send(code, there)
    assert not (tmp_path / "there is/code" / code.digest).exists()
    ssh.write_text(whole)
    assert code_folder.send(code, there) == ""


def test_only_the_user_may_read_a_copy(folder, tmp_path):
    code = code_folder.pack(str(folder), folder / "runs")
    assert code_folder.send(code, facts_of(tmp_path)) == ""
    copy = tmp_path / "there is/code" / code.digest
    assert all(
        one.lstat().st_mode & 0o077 == 0 for one in [copy, copy / "package", copy / "train.py"]
    )
