"""Requirements: the files that count, and the folder of their packages."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.errors import ConfigurationError
from entrypoint.packages import requirements
from entrypoint.packages.requirements import Requirements, find_requirements
from entrypoint.settings.environ import read_environ


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., Requirements | None]:
    """Return a function that finds requirements, given a requirements.txt and variables."""
    (tmp_path / "opt/pip").mkdir(parents=True)
    (tmp_path / "opt/pip/constraints.txt").write_text("numpy==2.4.6\n")

    def ask(text: str | None = None, **environ: str) -> Requirements | None:
        if text is not None:
            (tmp_path / "requirements.txt").write_text(text)
        variables = read_environ(environ, tmp_path, root=tmp_path)
        return find_requirements(variables.get("REQUIREMENTS_FILE"), tmp_path, root=tmp_path)

    return ask


def test_there_may_be_none(find: Callable) -> None:
    assert find() is None
    assert find("\n# nothing yet\n") is None
    assert find("tiny\n", REQUIREMENTS_FILE="none") is None


def test_a_file_that_is_named_has_to_be_there(find: Callable) -> None:
    with pytest.raises(ConfigurationError, match=r"REQUIREMENTS_FILE: .* It does not exist"):
        find(REQUIREMENTS_FILE="other.txt")


def test_the_folder_is_named_after_all_that_decides(find: Callable, tmp_path: Path) -> None:
    def folder() -> str:
        return find("tiny\n-r more.txt\n").folder

    folders = [folder(), folder()]
    (tmp_path / "more.txt").write_text("tiny2\n-r more.txt\n")
    folders.append(folder())
    (tmp_path / "more.txt").write_text("tiny3\n")
    folders.append(folder())
    (tmp_path / "opt/pip/constraints.txt").write_text("numpy==2.5.0\n")
    folders.append(folder())
    assert folders[0] == folders[1]
    assert len(set(folders)) == 4
    assert {one.parent for one in folders} == {Path("/data/.packages")}


def test_files_that_include_each_other_are_read_once(find: Callable, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "more.txt").write_text("-r sub/../requirements.txt\n-r circle.txt\n")
    (tmp_path / "circle.txt").symlink_to("circle.txt")
    assert find("-r sub/../more.txt\n-r ./requirements.txt\ntiny\n")


def test_a_command_finds_packages_and_their_programs_last(find: Callable) -> None:
    requirements = find("tiny\n")
    environment = requirements.added_to({"PATH": "/bin", "A": "b"})
    assert environment["PATH"] == f"/bin:{requirements.folder}/bin"
    assert environment["PACKAGES_DIR"].startswith(f"{requirements.folder}/lib/python3.")
    assert environment["A"] == "b"


def test_a_folder_that_cannot_be_searched_counts_as_not_installed(
    find: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(0o700)
    monkeypatch.setattr(requirements, "FOLDER", locked / ".packages")
    found = find("tiny\n")
    before = os.geteuid()
    os.seteuid(before or 65_534)  # root may search any folder
    locked.chmod(0o000) if before else None
    try:
        assert not found.is_installed()
        assert "are not installed yet" in requirements.notes_on(found)[0]
    finally:
        os.seteuid(before)
        locked.chmod(0o700)
