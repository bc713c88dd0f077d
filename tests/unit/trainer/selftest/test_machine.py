"""The table's rows about a machine."""

import json

import pytest

from cluster_trainer.selftest import machine
from cluster_trainer.selftest.gpus import Gpu
from cluster_trainer.selftest.table import Row, State

H100 = Gpu("NVIDIA H100", "570.86.15", "9.0", 81559, 4)
SEEN = {"name": "NVIDIA H100", "capability": "9.0"}


def devices(gpus=(), sums=(), *, for_gpus=True):
    facts = {"gpus": [*gpus], "sums": [*sums], "expected": 8.0, "for_gpus": for_gpus}
    return Row(name="GPUs", state=State.HELD, found="", facts=facts)


def test_gpus_that_compute_hold():
    row = machine.gpus_row(devices([SEEN, SEEN], [8.0, 8.0]), [H100, H100], 2)
    assert row.state == State.HELD
    assert "NVIDIA H100 (9.0)" in row.found


def test_a_gpu_that_computes_something_else_has_failed():
    row = machine.gpus_row(devices([SEEN, SEEN], [8.0, 7.0]), [H100, H100], 2)
    assert row.state == State.FAILED


@pytest.mark.parametrize(("listed", "files"), [([H100], 0), ([], 2)])
@pytest.mark.parametrize(("for_gpus", "advice"), [(True, "toolkit"), (False, "make build-gpu")])
def test_gpus_that_tensorflow_does_not_see_have_failed(listed, files, for_gpus, advice):
    row = machine.gpus_row(devices(for_gpus=for_gpus), listed, files)
    assert row.state == State.FAILED
    assert advice in row.advice


def test_a_machine_without_gpus_is_not_tried():
    assert machine.gpus_row(devices(), [], 0).state == State.NOT_TRIED


def test_a_failed_look_stays_failed():
    failed = Row(name="GPUs", state=State.FAILED, found="exit code 139")
    assert machine.gpus_row(failed, [H100], 1) == failed


def test_the_driver_has_failed_if_the_entrypoint_warns_of_it():
    assert machine.driver_row([H100], "").found == "570.86.15"
    assert machine.driver_row([H100], "NVIDIA driver 535 is older").state == State.FAILED
    assert machine.driver_row([], "").state == State.NOT_TRIED


@pytest.mark.parametrize(
    ("used", "total", "state"),
    [(4, 81559, State.HELD), (60000, 81559, State.FAILED), (None, None, State.HELD)],
)
def test_memory_that_others_use_fails(used, total, state):
    gpu = Gpu("NVIDIA H100", "570.86.15", "9.0", total, used)
    assert machine.memory_row([gpu]).state == state


def test_missing_peer_access_is_told_and_no_failure():
    row = machine.direct_row([H100] * 3, {(0, 1): "OK", (0, 2): "CNS", (1, 2): "OK"})
    assert row.state == State.HELD
    assert "0-2 (CNS)" in row.found
    assert "0-1" not in row.found


@pytest.mark.parametrize(("gpus", "pairs"), [([H100], {}), ([H100] * 2, {})])
def test_peer_access_that_is_not_known_is_not_tried(gpus, pairs):
    assert machine.direct_row(gpus, pairs).state == State.NOT_TRIED


def test_shared_memory_has_failed_if_the_entrypoint_warns_of_it():
    assert machine.shared_memory_row("/dev/shm has 64 MiB").state == State.FAILED
    assert machine.shared_memory_row("").state == State.HELD


def test_warnings_are_read_from_lines_in_json():
    lines = [
        json.dumps({"level": "INFO", "message": "one"}),
        json.dumps({"level": "WARNING", "message": "/dev/shm has 64 MiB"}),
        "no json",
        "3",
    ]
    assert machine.read_warnings("\n".join(lines)) == ["/dev/shm has 64 MiB"]


def test_every_machine_has_the_same_rows(tmp_path):
    rows = machine.machine_rows({"PATH": str(tmp_path)}, [], devices())
    assert [row.name for row in rows] == ["GPUs", "driver", "memory", "peer access", "/dev/shm"]
