"""The driver is compared with the image's CUDA, before TensorFlow passes over it in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from entrypoint.checks.nvidia_driver import check_driver
from entrypoint.errors import ConfigurationError

# The first lines of /proc/driver/nvidia/version, of the driver's two kernel modules.
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
