"""Several GPUs of one container share /dev/shm. Docker's default size is 64 MiB."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from entrypoint.checks import gpus
from entrypoint.checks.gpus import shared_memory_warning

MIB = 1 << 20


@pytest.fixture
def size(monkeypatch: pytest.MonkeyPatch) -> object:
    """Return a function that sets the size of the file system, in MiB."""

    def set_size(mib: int) -> None:
        found = SimpleNamespace(f_blocks=mib * MIB // 4096, f_frsize=4096)
        monkeypatch.setattr(os, "statvfs", lambda _: found)

    return set_size


def test_warns_of_dockers_default_and_says_what_to_give(size) -> None:
    size(64)
    warning = shared_memory_warning(2)
    assert warning is not None
    assert warning.startswith("/dev/shm has 64 MiB for 2 GPUs")
    assert "--shm-size 1g" in warning


def test_in_a_pod_it_names_the_pods_own_means(size, monkeypatch) -> None:
    monkeypatch.setattr(gpus, "is_in_pod", lambda: True)
    size(64)
    warning = shared_memory_warning(2)
    assert warning is not None
    assert "give the container an emptyDir with medium: Memory there" in warning


@pytest.mark.parametrize(("gpus", "mib"), [(0, 64), (1, 64), (2, 1024), (8, 16384)])
def test_says_nothing_where_nothing_is_shared_or_there_is_enough(size, gpus, mib) -> None:
    size(mib)
    assert shared_memory_warning(gpus) is None


def test_says_nothing_where_there_is_no_such_folder(tmp_path: Path) -> None:
    assert shared_memory_warning(2, tmp_path / "missing") is None
