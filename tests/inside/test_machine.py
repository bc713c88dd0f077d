from types import SimpleNamespace

import pytest
import tensorflow as tf

from cluster_trainer.data.memory import available_bytes
from cluster_trainer.distribution.strategy import choose, set_devices, set_threads
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.task import Task

CLUSTER = Task(num_workers=2)
CPU, GPU, GPUS = ("CPU:0",), ("GPU:0",), ("GPU:0", "GPU:1")
MEMINFO = "MemTotal: 4000 kB\nMemAvailable: 3000 kB\n"


@pytest.mark.parametrize(
    ("wanted", "task", "devices", "choice"),
    [
        ("auto", Task(), CPU, "none"),
        ("auto", Task(), GPU, "none"),
        ("auto", Task(), GPUS, "mirrored"),
        ("auto", CLUSTER, CPU, "multiworker"),
        ("auto", CLUSTER, GPUS, "multiworker"),
        ("mirrored", Task(), CPU, "mirrored"),
        ("none", Task(), GPUS, "none"),
    ],
)
def test_auto_takes_what_fits(wanted, task, devices, choice):
    assert choose(wanted, "tensorflow", task, devices, may_ring=True) == choice


def test_a_ring_is_for_several_workers():
    assert choose("auto", "ring", CLUSTER, CPU, may_ring=False) == "ring"
    assert choose("auto", "ring", Task(), CPU, may_ring=True) == "none"


@pytest.mark.parametrize(
    ("wanted", "devices", "may_ring", "choice"),
    [
        ("auto", CPU, True, "ring"),
        ("auto", CPU, False, "multiworker"),
        ("auto", ("CPU:0", "CPU:1"), True, "multiworker"),
        ("auto", GPU, True, "multiworker"),
        ("multiworker", CPU, True, "multiworker"),
    ],
)
def test_auto_takes_the_ring_where_each_worker_has_one_cpu(wanted, devices, may_ring, choice):
    assert choose(wanted, "auto", CLUSTER, devices, may_ring=may_ring) == choice


class Machine:
    """Stands in for a machine with four GPUs: this process's TensorFlow is set up already."""

    def __init__(self, monkeypatch):
        there = {"GPU": [f"gpu {number}" for number in range(4)], "CPU": ["cpu"]}
        self.visible, self.cpus, self.threads = there["GPU"], 1, {}
        take = monkeypatch.setattr
        take(tf.config, "list_physical_devices", there.get)
        take(tf.config, "set_visible_devices", lambda gpus, _: setattr(self, "visible", gpus))
        take(tf.config.experimental, "set_memory_growth", lambda *_: None)
        take(tf.config, "set_logical_device_configuration", self._cut)
        pools = SimpleNamespace(
            set_intra_op_parallelism_threads=lambda count: self.threads.update(intra=count),
            set_inter_op_parallelism_threads=lambda count: self.threads.update(inter=count),
        )
        take(tf.config, "threading", pools)

    def _cut(self, _, parts):
        self.cpus = len(parts)


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


@pytest.mark.parametrize(
    ("wanted", "logical_cpus", "visible", "used"),
    [
        (None, None, [0, 1, 2, 3], ("GPU:0", "GPU:1", "GPU:2", "GPU:3")),
        ("GPU:1,GPU:3", None, [1, 3], ("GPU:0", "GPU:1")),
        ("CPU:0", None, [], ("CPU:0",)),
        (None, 2, [], ("CPU:0", "CPU:1")),
        ("CPU:0,CPU:1", 4, [], ("CPU:0", "CPU:1")),
    ],
)
def test_tensorflow_is_left_the_devices_that_train(machine, wanted, logical_cpus, visible, used):
    assert set_devices(wanted, logical_cpus) == used
    assert machine.visible == [f"gpu {number}" for number in visible]
    assert machine.cpus == (logical_cpus or 1)


def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(machine):
    with pytest.raises(ConfigurationError, match="accepted: GPU:0 GPU:1 GPU:2 GPU:3 CPU:0"):
        set_devices("GPU:3,GPU:4", None)
    assert len(machine.visible) == 4


@pytest.mark.parametrize(
    ("devices", "inside_operations"),
    [(("CPU:0",), 4), (("CPU:0", "CPU:1"), 2), (("CPU:0",) * 8, 1), (("GPU:0", "GPU:1"), 4)],
)
def test_the_devices_of_a_cpu_share_its_threads(machine, devices, inside_operations):
    assert set_threads(4, devices) == 4
    assert machine.threads == {"intra": inside_operations, "inter": 4}


@pytest.mark.parametrize(
    ("limit", "available"),
    [("2000000", 1_500_000), ("max", 3_072_000), ("9223372036854771712", 3_072_000)],
)
def test_available_memory_is_the_smaller_of_container_and_machine(tmp_path, limit, available):
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.current").write_text("500000")
    (tmp_path / "meminfo").write_text(MEMINFO)
    assert available_bytes(tmp_path, tmp_path / "meminfo") == available


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("memory.max", "memory.current", "memory.stat"), "anon 100\nactive_file 100000\n"),
        (
            (
                "memory/memory.limit_in_bytes",
                "memory/memory.usage_in_bytes",
                "memory/memory.stat",
            ),
            "active_file 7\ntotal_active_file 100000\ntotal_unevictable 5\n",
        ),
    ],
)
def test_copies_of_files_are_no_memory_in_use(tmp_path, names, text):
    (tmp_path / "memory").mkdir()
    for name, content in zip(names, ("2000000", "500000", text), strict=True):
        (tmp_path / name).write_text(content)
    (tmp_path / "meminfo").write_text(MEMINFO)
    assert available_bytes(tmp_path, tmp_path / "meminfo") == 1_600_000
