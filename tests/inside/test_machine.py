import pytest

from trainer.data.memory import available_bytes
from trainer.strategy import choose, cpu_quota
from trainer.task import Task

CLUSTER = Task(num_workers=2)
MEMINFO = "MemTotal: 4000 kB\nMemAvailable: 3000 kB\n"


@pytest.mark.parametrize(
    ("wanted", "task", "gpus", "choice"),
    [
        ("auto", Task(), 0, "none"),
        ("auto", Task(), 1, "none"),
        ("auto", Task(), 2, "mirrored"),
        ("auto", CLUSTER, 0, "multiworker"),
        ("auto", CLUSTER, 4, "multiworker"),
        ("mirrored", Task(), 0, "mirrored"),
        ("none", Task(), 4, "none"),
    ],
)
def test_auto_takes_what_fits(wanted, task, gpus, choice):
    assert choose(wanted, task, gpus) == choice


@pytest.mark.parametrize(
    ("text", "quota"), [("150000 100000", 1.5), ("max 100000", None), ("broken", None)]
)
def test_cpu_quota_of_cgroup_v2(tmp_path, text, quota):
    (tmp_path / "cpu.max").write_text(text)
    assert cpu_quota(v2=tmp_path / "cpu.max", v1=tmp_path) == quota


@pytest.mark.parametrize(("text", "quota"), [("50000", 0.5), ("-1", None)])
def test_cpu_quota_of_cgroup_v1(tmp_path, text, quota):
    (tmp_path / "cpu.cfs_quota_us").write_text(text)
    (tmp_path / "cpu.cfs_period_us").write_text("100000")
    assert cpu_quota(v2=tmp_path / "absent", v1=tmp_path) == quota


@pytest.mark.parametrize(
    ("limit", "available"),
    [("2000000", 1_500_000), ("max", 3_072_000), ("9223372036854771712", 3_072_000)],
)
def test_available_memory_is_the_smaller_of_container_and_machine(tmp_path, limit, available):
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.current").write_text("500000")
    (tmp_path / "meminfo").write_text(MEMINFO)
    assert available_bytes(tmp_path, tmp_path / "meminfo") == available
