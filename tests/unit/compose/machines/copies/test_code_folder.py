"""The code folder that is copied to machines."""

import os
import shutil

import pytest

from local_cluster.messages import EndError
from machines.checks.facts import Facts
from machines.copies import code_folder
from machines.hosts_setting import Host
from machines.machine import Machine, at_once

MACHINE = Machine(Host("ana@m1"), 0)
BOTH = """#!/bin/sh
touch {folder}/$$
until [ $(ls {folder} | wc -l) = 2 ]; do sleep 0.02; done
exec {tar} "$@"
"""
"""A `tar` that waits until a second one runs."""
OVERTAKEN = """#!/bin/sh
for last; do :; done
mkdir "$last" && touch "$last/train.py"
exec {mv} "$@"
"""
"""A `mv` that another copy of the same folder has overtaken."""


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
    (folder / "logs/old").mkdir(parents=True)
    (folder / "runs").mkdir()
    (folder / "runs/large").write_text("x")
    code = code_folder.pack(str(folder), folder / "runs")
    there = facts_of(tmp_path)
    assert code_folder.send(code, there) == ""
    assert code_folder.send(code, there) == ""  # it is there already
    copy = tmp_path / "there is/code" / code.digest
    assert (copy / "package/part.py").read_text() == "x = 1\n"
    assert os.access(copy / "train.py", os.X_OK)
    assert (copy / "link").readlink().name == "train.py"
    assert (copy / "logs/old").is_dir()
    assert code.files == 3
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
        lambda folder: (folder / "empty").mkdir(),
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


def test_two_copies_at_the_same_time_do_not_disturb_each_other(folder, tmp_path):
    code = code_folder.pack(str(folder), folder / "runs")
    (tmp_path / "both").mkdir()
    _replace(tmp_path, "tar", BOTH.format(folder=tmp_path / "both", tar=shutil.which("tar")))
    assert at_once(lambda one: code_folder.send(code, one), [facts_of(tmp_path)] * 2) == ["", ""]
    (copy,) = (tmp_path / "there is/code").iterdir()
    assert code_folder.pack(str(copy), folder).digest == code.digest


def test_a_copy_that_another_one_overtakes_leaves_it_as_it_is(folder, tmp_path):
    code = code_folder.pack(str(folder), folder / "runs")
    _replace(tmp_path, "mv", OVERTAKEN.format(mv=shutil.which("mv")))
    assert code_folder.send(code, facts_of(tmp_path)) == ""
    (copy,) = (tmp_path / "there is/code").iterdir()
    assert [one.name for one in copy.iterdir()] == ["train.py"]


def test_a_copy_that_fails_leaves_nothing(folder, tmp_path):
    code = code_folder.pack(str(folder), folder / "runs")
    _replace(tmp_path, "tar", "#!/bin/sh\necho the disk is full >&2\nexit 2\n")
    assert "the disk is full" in code_folder.send(code, facts_of(tmp_path))
    assert not [*(tmp_path / "there is/code").iterdir()]


def _replace(tmp_path, name, program):
    (tmp_path / "programs" / name).write_text(program)
    (tmp_path / "programs" / name).chmod(0o755)
