"""What the repository contains."""

import subprocess
from pathlib import Path, PurePath

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT_A_SUFFIX = {
    ".dockerignore",
    ".editorconfig",
    ".gitattributes",
    ".gitignore",
    "Dockerfile",
    "LICENSE",
    "Makefile",
    "NOTICE",
    "run",
    "ssh",
    "status",
}


def test_no_file_is_one_that_a_shell_left_behind():
    """A wrong redirection in a shell makes files such as `1`, which `git add` then takes."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode:
        pytest.skip("not a git repository")
    paths = [PurePath(path) for path in listing.stdout.split("\0") if path]
    assert [path for path in paths if not path.suffix and path.name not in WITHOUT_A_SUFFIX] == []
