"""The driver is compared with the image's CUDA. TensorFlow ignores a mismatch in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.checks.nvidia_driver import check_driver, kernels_warning
from entrypoint.errors import ConfigurationError

# The first line of /proc/driver/nvidia/version, for each of the driver's two kernel modules.
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Thu Oct 26 16:43:36 UTC 2023\n"
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (dvs-builder)  "
    "Wed Jul  2 00:00:00 UTC 2025\n"
)


@pytest.mark.parametrize("form", [CLOSED, OPEN])
@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("525.60.13", "12.9.79"), ("535.129.03", "12.9.79"), ("580.65.06", "13.0.48")],
)
def test_accepts_a_driver_that_runs_the_major_version(
    tmp_path: Path, form: str, driver: str, cuda: str
) -> None:
    file = tmp_path / "version"
    file.write_text(form.format(driver))
    check_driver(cuda, 1, file)


@pytest.mark.parametrize("form", [CLOSED, OPEN])
@pytest.mark.parametrize(
    ("driver", "cuda", "first"),
    [
        ("470.57.02", "12.9.79", "525.60.13"),
        ("525.60.11", "12.9.79", "525.60.13"),
        ("575.51.03", "13.0.48", "580.65.06"),
    ],
)
def test_refuses_one_that_does_not(
    tmp_path: Path, form: str, driver: str, cuda: str, first: str
) -> None:
    file = tmp_path / "version"
    file.write_text(form.format(driver))
    with pytest.raises(ConfigurationError) as caught:
        check_driver(cuda, 1, file)
    says = f'NVIDIA driver: received "{driver}"; accepted: {first} or later, for the image\'s CUDA'
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("cuda", "gpus", "text"),
    [
        ("", 1, CLOSED.format("470.57.02")),  # an image for CPUs
        ("12.9.79", 0, CLOSED.format("470.57.02")),  # GPUs that the container does not see
        ("99.0", 1, CLOSED.format("470.57.02")),
        ("12.9.79", 1, "something else\n"),
        ("12.9.79", 1, None),
    ],
)
def test_says_nothing_where_it_cannot_know(
    tmp_path: Path, cuda: str, gpus: int, text: str | None
) -> None:
    file = tmp_path / "version"
    if text is not None:
        file.write_text(text)
    check_driver(cuda, gpus, file)


OLD_GPU, NEW_GPU = "NVIDIA A100-SXM4-40GB, 8.0\nNVIDIA L4, 8.9\n", "NVIDIA H100 80GB HBM3, 9.0\n"
NEWEST_GPU = "NVIDIA GeForce RTX 5090, 12.0\n"


@pytest.fixture
def warned(tmp_path: Path, nvidia_smi: Callable) -> Callable[..., str]:
    """Return a function that returns the warning on a machine with a driver and GPUs."""

    def said(driver: str, gpus: str, cuda: str = "12.9.79") -> str:
        file = tmp_path / "version"
        file.write_text(OPEN.format(driver))
        asked = "--query-gpu=name,compute_cap --format=csv,noheader"
        return kernels_warning(cuda, nvidia_smi(gpus, asked), file) or ""

    return said


@pytest.mark.parametrize("driver", ["535.129.03", "555.41.9"])
def test_warns_of_an_old_driver_that_cannot_compile_for_new_gpus(
    warned: Callable, driver: str
) -> None:
    said = warned(driver, OLD_GPU + 2 * NEW_GPU + NEWEST_GPU)
    assert f"driver {driver} is older than 555.42" in said
    assert "for NVIDIA H100 80GB HBM3, NVIDIA GeForce RTX 5090:" in said


@pytest.mark.parametrize(
    ("driver", "gpus", "cuda"),
    [
        ("555.42.02", NEW_GPU, "12.9.79"),
        ("580.65.06", NEWEST_GPU, "12.9.79"),
        ("535.129.03", OLD_GPU, "12.9.79"),
        ("535.129.03", NEW_GPU, ""),  # an image for CPUs
        ("535.129.03", "", "12.9.79"),
        ("535.129.03", "NVIDIA H100 80GB HBM3, [N/A]\n", "12.9.79"),
    ],
)
def test_does_not_warn_elsewhere(warned: Callable, driver: str, gpus: str, cuda: str) -> None:
    assert warned(driver, gpus, cuda) == ""


def test_does_not_warn_where_nobody_can_be_asked(tmp_path: Path) -> None:
    file = tmp_path / "version"
    file.write_text(OPEN.format("535.129.03"))
    assert kernels_warning("12.9.79", {"PATH": str(tmp_path)}, file) is None
