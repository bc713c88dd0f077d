"""The processors of a container, from cgroup v1 or v2, and the threads of a script."""

import os

import pytest

from cluster_trainer.processors import THREADS, available_cpus, limit_of_processors
from cluster_trainer.processors import threads_of_script as threads

PERIOD = 100_000


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    """Return a function that makes a container's cgroup, on a machine of 8 processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))

    def make(limit, folder=None):
        """Limit the container to so many processors, or not (None). cgroup v1 has a folder."""
        if folder is None:
            quota = "max" if limit is None else int(limit * PERIOD)
            (tmp_path / "cpu.max").write_text(f"{quota} {PERIOD}\n")
            return tmp_path
        (tmp_path / folder).mkdir()
        quota = -1 if limit is None else int(limit * PERIOD)
        (tmp_path / folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (tmp_path / folder / "cpu.cfs_period_us").write_text(f"{PERIOD}\n")
        return tmp_path

    return make


@pytest.mark.parametrize("folder", [None, "cpu", "cpu,cpuacct"])
@pytest.mark.parametrize("limit", [0.25, 1.5, None])
def test_the_limit_is_read(cgroup, limit, folder):
    assert limit_of_processors(cgroup(limit, folder)) == limit


def test_what_cannot_be_read_is_no_limit(cgroup):
    folder = cgroup(2)
    (folder / "cpu.max").write_text("broken")
    assert limit_of_processors(folder) is None


@pytest.mark.parametrize(("limit", "count"), [(0.25, 1), (2, 2), (2.6, 3), (9, 8), (None, 8)])
def test_a_process_may_use_what_it_may_run_on_within_the_limit(cgroup, limit, count):
    assert available_cpus(cgroup(limit)) == count


def told(count):
    return {THREADS: count}


@pytest.mark.parametrize(
    ("limit", "environ", "given"),
    [
        (2, {}, told("2")),
        (None, {}, {}),
        (8, {}, {}),
        (2, {"TF_NUM_INTEROP_THREADS": "5"}, told("2")),
        (2, told("5"), {}),
        (2, {"OMP_NUM_THREADS": "5"}, {}),
        (2, {"OMP_NUM_THREADS": ""} | told(""), told("2")),
        (2, {"TRAINER_THREADS": "auto"}, told("2")),
        (2, {"TRAINER_THREADS": "3"}, told("3")),
        (None, {"TRAINER_THREADS": "3", "OMP_NUM_THREADS": "5"}, told("3")),
        (2, {"TRAINER_THREADS": "3"} | told("5"), {}),
    ],
)
def test_a_script_is_told_what_nobody_has_chosen(cgroup, limit, environ, given):
    assert threads(environ, cgroup(limit)) == given
