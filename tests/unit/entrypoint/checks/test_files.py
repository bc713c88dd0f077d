"""PROGRESS_FILE and FAILURE_FILE are refused where there is no file, and none can be made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that makes something of a kind, and returns its path."""

    def make(kind: str) -> str:
        path = tmp_path / kind
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "file":
            path.touch()
        return "/dev/null" if kind == "device" else str(path)

    return make


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("PROGRESS_FILE", "file", 0),
        ("PROGRESS_FILE", "nothing", 0),
        ("PROGRESS_FILE", "folder", 78),
        ("PROGRESS_FILE", "pipe", 78),
        ("PROGRESS_FILE", "device", 78),
        ("FAILURE_FILE", "folder", 78),
        ("FAILURE_FILE", "pipe", 0),
        ("FAILURE_FILE", "device", 0),
    ],
)
def test_it_has_to_be_a_file(
    run: Callable, place: Callable[[str], str], name: str, kind: str, code: int
) -> None:
    ended = run("true", **{name: place(kind)})
    assert (ended.code, f"{name}: received" in ended.stderr) == (code, code == 78)


def test_a_relative_path_begins_in_the_working_directory(run: Callable, tmp_path: Path) -> None:
    (tmp_path / "workspace/progress").mkdir()
    assert run("true", PROGRESS_FILE="progress").code == 78
