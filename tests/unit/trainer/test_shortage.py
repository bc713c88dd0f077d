"""The resource that a busy worker lacks, by the kernel's counters in cgroup v1 and v2."""

import os
import threading
import time
from dataclasses import replace

import pytest

from cluster_trainer.process.shortage import Used, shortage, throttled_seconds
from cluster_trainer.process.utilization import UtilizationSampler, states_of

BEFORE = Used(seconds=100.0, cpu=5.0, throttled=1.0, faults=10)


@pytest.fixture
def cgroup(tmp_path):
    """Return a function that makes the cgroup of a container with a quarter of a processor."""

    def make(version):
        files = {
            1: {
                "cpu/cpu.stat": "nr_periods 9\nnr_throttled 8\nthrottled_time 2500000000\n",
                "cpu/cpu.cfs_quota_us": "25000\n",
                "cpu/cpu.cfs_period_us": "100000\n",
            },
            2: {
                "cpu.stat": "usage_usec 7\nnr_throttled 8\nthrottled_usec 2500000\n",
                "cpu.max": "25000 100000\n",
            },
        }[version]
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return make


@pytest.mark.parametrize("version", [1, 2])
def test_how_long_the_limit_held_is_read(cgroup, version):
    assert throttled_seconds(cgroup(version)) == 2.5


def test_no_limit_holds_for_no_time(tmp_path):
    assert throttled_seconds(tmp_path) == 0


@pytest.mark.parametrize(
    ("used", "busy", "disk", "said"),
    [
        (
            Used(110.0, 7.5, 8.0, 10),
            0.95,
            0.0,
            "its limit of 0.25 processors has stopped it",
        ),
        (Used(110.0, 6.0, 1.0, 10), 0.9, 0.5, "it has waited for a disk for 50% of that time"),
        (Used(110.0, 14.0, 1.0, 510), 0.9, 0.0, "short of memory: 50 pages per second"),
        (Used(110.0, 8.0, 1.0, 10), 0.9, 0.0, "other programs of its machine use the processors"),
        (Used(110.0, 14.0, 1.0, 10), 0.9, 0.0, "its processors are slower, or it has more to do"),
    ],
)
def test_the_reason_is_what_the_counters_say(cgroup, used, busy, disk, said):
    text = shortage(BEFORE, used, busy, disk, cgroup(2))
    assert text.startswith(said), text
    assert f"it has used {(used.cpu - BEFORE.cpu) / 10:.2f} of {os.cpu_count()} processors" in text


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (3.0, 7.0, "waited for their batches for 40% of that time"),
        (3.0, 3.1, "waited for their batches for 1% of that time"),
        (3.0, 0.5, None),  # of another train function
        (None, 7.0, None),
        (3.0, None, None),
    ],
)
def test_input_is_told_from_computing(tmp_path, before, now, said):
    used = Used(110.0, 14.0, 1.0, 10, now)
    text = shortage(replace(BEFORE, input=before), used, 0.9, 0.0, tmp_path)
    assert text.endswith(said) if said else "batches" not in text


def test_a_thread_that_computes_is_seen_and_one_that_waits_is_not(tmp_path):
    for number, state in ((1, "S"), (2, "R"), (3, "D")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "stat").write_text(f"{number} (a) name) {state} 0 0")
    (tmp_path / "4").mkdir()  # it has ended meanwhile
    assert states_of(tmp_path, own="2") == {b"S", b"D"}
    assert states_of(tmp_path, own="1") == {b"R", b"D"}


def test_a_process_is_looked_at_until_that_is_ended(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1/stat").write_text("1 (a) D 0 0")
    labours = UtilizationSampler(tmp_path)
    labours.begin()
    deadline = time.monotonic() + 20
    while labours.so_far().disk == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    labours.end()
    now = labours.so_far()
    assert now.disk == now.busy == now.seconds > 0
    for thread in threading.enumerate():
        if thread.name == "labour":
            thread.join(5)
    assert labours.so_far().since(labours.so_far()).seconds == 0
