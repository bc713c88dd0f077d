"""The results that are copied from machines."""

import io
import tarfile

import pytest

from machines.copies import results
from machines.host import Host
from machines.kept import Kept
from machines.machine import Machine

MACHINE = Machine(Host("ana@m1"), 0)


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
