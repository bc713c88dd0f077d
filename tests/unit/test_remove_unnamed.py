"""An image that a build has left without a name is removed. `docker` is a script here."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/remove-unnamed.sh"
DOCKER = """#!/bin/sh
cd "$(dirname "$0")"
case "$1 $2" in
    "image inspect") cat names ;;
    "image rm") echo "$3" >> removed; exit 1 ;;
esac
"""


@pytest.fixture
def removed(tmp_path):
    """Run the script with an image's number of names; return the removed images."""
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)

    def run(image, names):
        if names is not None:
            (tmp_path / "names").write_text(f"{names}\n")
        path = f"{tmp_path}:{os.environ['PATH']}"
        subprocess.run([SCRIPT, image], env={**os.environ, "PATH": path}, check=True)
        file = tmp_path / "removed"
        return file.read_text().split() if file.exists() else []

    return run


def test_one_without_a_name_is_removed(removed):
    assert removed("sha256:1", 0) == ["sha256:1"]


@pytest.mark.parametrize(("image", "names"), [("sha256:1", 1), ("sha256:1", None), ("", 0)])
def test_others_are_not(removed, image, names):
    """`docker image rm` of an image with one name removes that name, which may be a user's own."""
    assert removed(image, names) == []
