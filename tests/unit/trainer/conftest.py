import logging
import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def found_by_children(monkeypatch):
    """Let Python processes that a test starts find the package."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3] / "trainer"))


@pytest.fixture
def warnings(caplog, monkeypatch):
    """The log, wherever an earlier test's run has sent it."""
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)
    return caplog


@pytest.fixture
def disk(monkeypatch):
    """The calls that make changes durable, in order: `sync NAME` and `rename OLD NEW`."""
    events = []
    real_sync, real_replace = os.fsync, os.replace

    def fsync(descriptor):
        events.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        real_sync(descriptor)

    def replace(old, new):
        events.append(f"rename {Path(old).name} {Path(new).name}")
        real_replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return events
