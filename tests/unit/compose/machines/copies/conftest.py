"""Shared fixtures."""

import os

import pytest


@pytest.fixture(autouse=True)
def _ssh(tmp_path, monkeypatch):
    """Install an `ssh` that runs its last argument in a local shell, and a `docker` that fails."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ssh").write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    (programs / "docker").write_text("#!/bin/sh\nexit 1\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
