"""The results that are copied from machines."""

import io
import tarfile

import pytest

from machines.cluster_record import Kept
from machines.copies import results
from machines.hosts_setting import Host
from machines.machine import Machine

MACHINE = Machine(Host("ana@m1"), 0)


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home/first").mkdir(parents=True)
    return Kept("p", (MACHINE.host,), "first", str(tmp_path / "home"), (str(tmp_path),))


@pytest.fixture
def there(tmp_path):
    """The worker's folder on the machine, with a checkpoint and metrics."""
    folder = tmp_path / "runs/first/worker-0"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints/1.npz").write_text("1")
    (folder / "metrics.jsonl").write_text("old")
    return folder


def fetched(there, home, without=()):
    """Fetch; return the worker's folder here, and the files that were set aside, with contents."""
    assert results.fetch(MACHINE, str(there.parent), home, without) == ""
    here = home.folder.path
    return _contents(here / "worker-0"), _contents(here / "earlier")


def _contents(folder):
    files = [one for one in folder.rglob("*") if not one.is_dir()]
    return {str(one.relative_to(folder)): one.read_text() for one in files}


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


@pytest.mark.timeout(60)
def test_a_tar_that_warns_of_many_files_is_read_to_its_end(tmp_path, there, home):
    (tmp_path / "programs/tar").write_text(
        '#!/bin/sh\nhead -c 1000000 /dev/zero >&2\nexec /bin/tar "$@"\n'
    )
    (tmp_path / "programs/tar").chmod(0o755)
    assert results.fetch(MACHINE, str(there.parent), home) == ""
    assert (home.folder.path / "worker-0/metrics.jsonl").exists()


def test_a_folder_that_is_gone_is_said(tmp_path, home):
    assert results.fetch(MACHINE, str(tmp_path / "gone"), home).startswith("ana@m1: ")


def test_files_that_a_machine_no_longer_has_are_set_aside(there, home, capfd):
    fetched(there, home)
    (there / "checkpoints/2.npz").write_text("2")
    (there / "checkpoints/1.npz").unlink()
    here, aside = fetched(there, home)
    assert here == {"metrics.jsonl": "old", "checkpoints/2.npz": "2"}
    ((place, text),) = aside.items()
    assert (place.partition("/")[2], text) == ("worker-0/checkpoints/1.npz", "1")
    said = capfd.readouterr().out
    assert "ana@m1 no longer has 1 file(s)" in said
    assert str(home.folder.path / "earlier") in said


def test_a_run_that_began_again_replaces_the_earlier_one(there, home):
    fetched(there, home)
    (there / "earlier/then").mkdir(parents=True)
    for name in ("checkpoints", "metrics.jsonl"):
        (there / name).rename(there / "earlier/then" / name)
    (there / "train.log").write_text("new")
    here, aside = fetched(there, home)
    earlier = {"earlier/then/metrics.jsonl": "old", "earlier/then/checkpoints/1.npz": "1"}
    assert here == {"train.log": "new", **earlier}
    assert {place.partition("/")[2] for place in aside} == {
        "worker-0/checkpoints/1.npz",
        "worker-0/metrics.jsonl",
    }


def test_a_users_own_files_are_set_aside_and_never_overwritten(there, home):
    fetched(there, home)
    for text in ("first", "second"):
        (home.folder.path / "worker-0/notes.txt").write_text(text)
        fetched(there, home)
    _, aside = fetched(there, home)
    assert sorted(aside.values()) == ["first", "second"]


def test_large_files_stay_if_only_records_are_fetched(there, home):
    fetched(there, home)
    (there / "checkpoints/1.npz").unlink()
    (there / "metrics.jsonl").unlink()
    here, aside = fetched(there, home, ("checkpoints", "*.keras"))
    assert here == {"checkpoints/1.npz": "1"}
    assert [*aside.values()] == ["old"]


def test_the_workers_output_stays(there, home):
    fetched(there, home)
    (home.folder.path / "worker-0/container.log").write_text("lines")
    here, aside = fetched(there, home)
    assert here["container.log"] == "lines"
    assert aside == {}


def test_nothing_is_set_aside_if_the_results_could_not_be_fetched(tmp_path, there, home):
    fetched(there, home)
    (tmp_path / "programs/tar").write_text("#!/bin/sh\nexit 2\n")
    (tmp_path / "programs/tar").chmod(0o755)
    assert "could not be fetched" in results.fetch(MACHINE, str(there.parent), home)
    assert (home.folder.path / "worker-0/metrics.jsonl").exists()
    assert not (home.folder.path / "earlier").exists()


@pytest.mark.parametrize("size", [512, 700, 5 * 512])
@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_copy_that_was_cut_off_is_not_a_complete_one(tmp_path, there, home, size, code):
    """Python takes an end between two files for the end of the archive."""
    for index in range(5):
        (there / f"{index}.txt").write_text("x")
    fetched(there, home)
    program = f'#!/bin/sh\n/bin/tar "$@" | head -c {size}\nexit {code}\n'
    (tmp_path / "programs/tar").write_text(program)
    (tmp_path / "programs/tar").chmod(0o755)
    assert "could not be fetched" in results.fetch(MACHINE, str(there.parent), home)
    assert len(_contents(home.folder.path / "worker-0")) == 7
    assert not (home.folder.path / "earlier").exists()


def test_a_copy_whose_ssh_is_killed_is_not_a_complete_one(tmp_path, there, home):
    fetched(there, home)
    (tmp_path / "programs/ssh").write_text(
        f"#!/bin/sh\ntar -c -f - -C {there.parent} worker-0\nkill -KILL $$\n"
    )
    (tmp_path / "programs/ssh").chmod(0o755)
    said = results.fetch(MACHINE, str(there.parent), home)
    assert said.endswith("the results could not be fetched: ssh was ended by signal 9")


def test_a_link_here_is_set_aside_and_not_followed(tmp_path, there, home):
    fetched(there, home)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").touch()
    (home.folder.path / "worker-0/link").symlink_to(tmp_path / "mine")
    assert results.fetch(MACHINE, str(there.parent), home) == ""
    assert not (home.folder.path / "worker-0/link").is_symlink()
    assert (tmp_path / "mine/file").exists()
