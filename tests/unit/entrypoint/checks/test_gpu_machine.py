"""The devices that a command trains on, as far as they are known before it starts."""

import pytest

from entrypoint.checks import gpu_machine
from entrypoint.checks.gpu_machine import devices_of, machine_warnings

TRAINER = ["python", "-m", "trainer"]


@pytest.fixture(params=[("12.9", 2), ("12.9", 0), ("", 2)])
def kind(request, monkeypatch):
    """The kind of devices: GPUs need CUDA in the image and GPUs in the machine."""
    cuda, gpus = request.param
    monkeypatch.setattr(gpu_machine, "cuda_version", lambda: cuda)
    monkeypatch.setattr(gpu_machine, "count_devices", lambda _: gpus)
    return "GPU" if cuda and gpus else "CPU"


def test_it_is_a_gpu_where_there_is_one_and_the_image_is_for_it(kind):
    assert devices_of(TRAINER, {}) == kind


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("name", ["TRAINER_DEVICES", "TRAINER_LOGICAL_CPUS"])
def test_a_setting_decides_for_itself(name):
    assert devices_of(TRAINER, {name: "2"}) == ""


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("flag", ["--devices=CPU:0", "--devices", "--logical-cpus=2"])
def test_so_does_a_flag(flag):
    assert devices_of([*TRAINER, flag], {}) == ""


@pytest.mark.parametrize("memory", ["little memory", None])
@pytest.mark.parametrize("kernels", ["old driver", None])
def test_all_is_said_of_a_machine_with_gpus(monkeypatch, memory, kernels):
    monkeypatch.setattr(gpu_machine, "count_devices", lambda _: 2)
    monkeypatch.setattr(gpu_machine, "cuda_version", lambda: "12.9")
    monkeypatch.setattr(
        gpu_machine, "shared_memory_warning", lambda gpus: memory if gpus == 2 else ""
    )
    monkeypatch.setattr(
        gpu_machine,
        "kernels_warning",
        lambda *given: kernels if given == ("12.9", {"A": "1"}) else "",
    )
    assert machine_warnings({"A": "1"}) == [one for one in (memory, kernels) if one]


def test_a_machine_without_gpus_is_not_asked(monkeypatch):
    monkeypatch.setattr(gpu_machine, "count_devices", lambda _: 0)
    monkeypatch.setattr(gpu_machine, "kernels_warning", lambda *_: pytest.fail("asked"))
    assert machine_warnings({}) == []
