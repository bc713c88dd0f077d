"""Real installations by pip, from a wheel that the test writes."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

import pip
import pytest

from entrypoint.log import Log
from entrypoint.packages import install as installing
from entrypoint.packages import run_pip as running
from entrypoint.packages.install import install
from entrypoint.packages.requirements import Requirements
from harness.wheels import write_wheel

pytestmark = pytest.mark.slow

LOG = Log("worker-0")


@pytest.fixture
def requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Requirements:
    """Return requirements that name a wheel, with pip where the image has it."""
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/pip").symlink_to(Path(pip.__file__).parent)
    (tmp_path / "opt/constraints.txt").touch()
    monkeypatch.setattr(running, "PIP", str(tmp_path / "opt"))
    write_wheel(tmp_path / "wheels", "tiny", {"tiny.py": ""})
    file = tmp_path / "requirements.txt"
    file.write_text("tiny\n")
    return Requirements(file, tmp_path / "data/digest")


@pytest.fixture
def run(requirements: Requirements, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Return a function that installs the requirements, with pip's variables."""

    def start(**variables: str) -> tuple[int, str]:
        wheels = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}
        return install(requirements, wheels | variables, LOG)

    return start


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_installed_is_on_the_disk_before_it_has_its_name(
    run: Callable, requirements: Requirements, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def recorded(name: str) -> None:
        real = getattr(installing, name)

        def call(folder: Path) -> None:
            calls.append((name, folder == requirements.folder.parent, requirements.is_installed()))
            assert (folder / "lib").exists() or folder == requirements.folder.parent
            real(folder)

        monkeypatch.setattr(installing, name, call)

    recorded("sync_file_system")
    recorded("sync_folder")
    assert run() == (0, "")
    assert calls == [("sync_file_system", False, False), ("sync_folder", True, True)]
    assert (requirements.site_packages / "tiny.py").exists()
    assert names(requirements.folder.parent) == [".lock", "digest"]


def test_what_did_not_reach_the_disk_is_not_installed(
    run: Callable, requirements: Requirements, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(installing, "sync_file_system", fail)
    code, reason = run()
    assert (code, requirements.is_installed()) == (78, False)
    assert "No space left on device" in reason
    assert "can write to" not in reason
    assert names(requirements.folder.parent) == [".lock"]


def test_without_locks_workers_leave_each_others_work_alone(
    run: Callable,
    requirements: Requirements,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(fcntl, "flock", flock)
    at_work = requirements.folder.parent / ".unfinished-of-another"
    at_work.mkdir(parents=True)
    assert run() == (0, "")
    warning = capfd.readouterr().err.splitlines()[0]
    assert " WARNING " in warning
    assert os.strerror(errno.EOPNOTSUPP) in warning
    assert names(requirements.folder.parent) == [".lock", ".unfinished-of-another", "digest"]


@pytest.mark.parametrize(("seconds_ago", "stays"), [(10, True), (7200, False)])
def test_another_machines_installation_stays_as_long_as_it_changes(
    run: Callable, requirements: Requirements, *, seconds_ago: float, stays: bool
) -> None:
    # On NFS with local locks, a lock that another machine holds looks free here.
    at_work = requirements.folder.parent / ".unfinished-of-another"
    at_work.mkdir(parents=True)
    (at_work / "pip.log").touch()
    for path in (at_work / "pip.log", at_work):
        os.utime(path, (time.time() - seconds_ago,) * 2)
    assert run() == (0, "")
    assert at_work.exists() == stays


def test_what_was_killed_on_this_machine_is_removed(
    run: Callable, requirements: Requirements
) -> None:
    left = requirements.folder.with_name(f"{installing.unfinished_here()}1234")
    left.mkdir(parents=True)
    assert run() == (0, "")
    assert not left.exists()


def test_the_first_of_two_workers_without_locks_counts(
    run: Callable, requirements: Requirements, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(folder: Path) -> None:
        (requirements.folder / "of-another").mkdir(parents=True)
        assert folder.exists()

    monkeypatch.setattr(installing, "sync_file_system", too_late)
    assert run() == (0, "")
    assert names(requirements.folder) == ["of-another"]
    assert names(requirements.folder.parent) == [".lock", "digest"]


def test_a_setting_that_pip_refuses_is_said_as_such(run: Callable) -> None:
    code, reason = run(PIP_TIMEOUT="abc")
    assert code == 78
    assert "'abc'" in reason
    assert "PIP_" in reason
    assert "can write to" not in reason
    assert "requirements.txt" not in reason


def test_a_file_system_is_synced_for_real(tmp_path: Path) -> None:
    installing.sync_file_system(tmp_path)
    installing.sync_folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        installing.sync_file_system(tmp_path / "missing")
