"""Checks whether the NVIDIA driver is new enough for the image's CUDA and for the GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from entrypoint.checks.gpus import ask_nvidia_smi
from entrypoint.errors import ConfigurationError, Problem

VERSION_FILE = Path("/proc/driver/nvidia/version")
"""The kernel module writes this line: "NVRM version: … Kernel Module  535.129.03  Thu Oct …"."""
VERSION = re.compile(r"Module.*?\s(\d+(?:\.\d+)+)\s")
FIRST_DRIVER = {"11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}
"""The first driver for each major version of CUDA, on which all its minor versions run
(https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html)."""

CAPABILITIES = ("--query-gpu=name,compute_cap", "--format=csv,noheader")
"""Prints a line for each GPU: "NVIDIA H100 80GB HBM3, 9.0"."""
CAPABILITY = re.compile(r"(?P<name>.+), (?P<version>\d+\.\d+)")
NOT_COMPILED, FIRST_COMPILER = "9.0", "555.42"
"""TensorFlow 2.21 has precompiled kernels for GPUs up to 8.9. From 9.0 on the driver compiles them
from PTX of CUDA 12.5, which older drivers cannot read."""


def check_driver(cuda: str, gpus: int, file: Path = VERSION_FILE) -> None:
    """Raise ConfigurationError if the driver is too old for TensorFlow to use any GPU.

    TensorFlow would mention this in one line among others, and train on the CPU.

    Args:
        cuda: the version in the image, "12.9.79"; "" in a CPU image.
        gpus: the number of GPUs in this container.
        file: the driver's description of itself.
    """
    first = FIRST_DRIVER.get(cuda.partition(".")[0])
    found = _driver(file)
    if not gpus or not first or not found or _numbers(found) >= _numbers(first):
        return
    accepted = f"{first} or later, for the image's CUDA {cuda}"
    advice = (
        "Install a newer driver on this machine (docs/how-to/gpus.md), or train without its GPUs: "
        "leave --gpus out, or set CUDA_VISIBLE_DEVICES=-1."
    )
    raise ConfigurationError([Problem("NVIDIA driver", found, accepted, advice)])


def kernels_warning(cuda: str, environ: Mapping[str, str], file: Path = VERSION_FILE) -> str | None:
    """Return a warning if the driver is too old to compile TensorFlow's kernels for these GPUs.

    It queries the GPUs only if the driver is that old, because the query takes a moment.

    Args:
        cuda: as for `check_driver`.
        environ: the command's variables.
        file: the driver's description of itself.
    """
    found = _driver(file)
    if not cuda or not found or _numbers(found) >= _numbers(FIRST_COMPILER):
        return None
    listed = (ask_nvidia_smi(CAPABILITIES, environ) or "").splitlines()
    gpus = [match for line in listed if (match := CAPABILITY.fullmatch(line.strip()))]
    new = [gpu["name"] for gpu in gpus if _numbers(gpu["version"]) >= _numbers(NOT_COMPILED)]
    if not new:
        return None
    return (
        f"NVIDIA driver {found} is older than {FIRST_COMPILER}, the first that compiles "
        f"TensorFlow's kernels for {', '.join(dict.fromkeys(new))}: training on such a GPU may "
        "fail with CUDA_ERROR_UNSUPPORTED_PTX_VERSION; install a newer driver on this machine "
        "(docs/how-to/gpus.md)"
    )


def _driver(file: Path) -> str:
    """Return the driver's version, "535.129.03"; "" if it cannot be determined."""
    try:
        match = VERSION.search(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return match[1] if match else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
