"""The number of GPUs in this container, and the shared memory through which they pass data."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from entrypoint.errors import ConfigurationError, Problem
from entrypoint.pod import is_in_pod

NVIDIA_SMI = "nvidia-smi"
"""A program of the NVIDIA container runtime."""
LIST_GPUS = "-L"
"""Prints a line for each GPU, and below it one for each MIG instance of a partitioned GPU."""
SECONDS = 20.0
DEVICE = re.compile(r"nvidia[0-9]+")


def check_gpus(expected: int | None, environ: Mapping[str, str]) -> None:
    """Raise ConfigurationError unless this worker has the expected number of GPUs."""
    if expected is None:
        return
    found = count_gpus(environ)
    if found != expected:
        advice = f"{_gpus(found)} can be seen in this container."
        if expected and not found:
            advice += (
                " Is nvidia.com/gpu missing in resources.limits?"
                if is_in_pod()
                else " Is --gpus all missing, or the NVIDIA container toolkit on this machine?"
            )
        accepted = "the number of GPUs that this worker has"
        raise ConfigurationError([Problem("GPUS_PER_WORKER", str(expected), accepted, advice)])


def count_gpus(environ: Mapping[str, str]) -> int:
    """Return the number of GPUs (or MIG instances) that TensorFlow would see.

    CUDA_VISIBLE_DEVICES hides some: CUDA uses its entries up to the first invalid one.
    """
    listed = ask_nvidia_smi([LIST_GPUS], environ)
    present = _device_files() if listed is None else _count_listed(listed)
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    return present if visible is None else min(present, _count_visible(visible))


def count_devices(environ: Mapping[str, str]) -> int:
    """Return the number of visible GPUs. Counting device files is faster than nvidia-smi."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    present = _device_files()
    return present if visible is None else min(present, _count_visible(visible))


def ask_nvidia_smi(arguments: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return nvidia-smi's output; None if it is missing, fails, or takes over 20 s."""
    import subprocess  # noqa: PLC0415 -- slow, and needed with GPUs only

    try:
        child = subprocess.Popen(  # noqa: S603 -- fixed arguments
            [NVIDIA_SMI, *arguments],
            env=dict(environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        output, _ = child.communicate(timeout=SECONDS)
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        child.kill()  # without a wait: a broken GPU may hold it in the kernel for ever
        return None
    return None if child.returncode else output.decode(errors="replace")


def _count_listed(text: str) -> int:
    lines = [line.strip() for line in text.splitlines()]
    instances = sum(line.startswith("MIG ") for line in lines)
    return instances or sum(line.startswith("GPU ") for line in lines)


def _device_files() -> int:
    return sum(1 for device in Path("/dev").iterdir() if DEVICE.fullmatch(device.name))


def _count_visible(text: str) -> int:
    """Count the entries of CUDA_VISIBLE_DEVICES before the first invalid one (`-1`)."""
    count = 0
    for entry in text.split(","):
        if not re.fullmatch(r"[0-9]+|(GPU|MIG)-\S+", entry.strip()):
            break
        count += 1
    return count


def _gpus(count: int) -> str:
    """Return "No GPU", "1 GPU" or "2 GPUs"."""
    return "No GPU" if count == 0 else "1 GPU" if count == 1 else f"{count} GPUs"


FOLDER = Path("/dev/shm")  # noqa: S108 -- only inspected, never written
ENOUGH_BYTES = 1 << 30
"""NVIDIA's recommendation, `--shm-size=1g`
(https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html)."""
SHARING = 2
"""The smallest number of GPUs in a container for which shared memory matters."""


def shared_memory_warning(gpus: int, folder: Path = FOLDER) -> str | None:
    """Return a warning if several GPUs of this container have too little shared memory."""
    if gpus < SHARING:
        return None
    try:
        system = os.statvfs(folder)
    except OSError:
        return None
    size = system.f_blocks * system.f_frsize
    if size >= ENOUGH_BYTES:
        return None
    give = "an emptyDir with medium: Memory there" if is_in_pod() else "--shm-size 1g"
    return (
        f"{folder} has {size >> 20} MiB for {gpus} GPUs: NCCL passes data between them through it, "
        f"and may fail with an unhandled system error; give the container {give} "
        "(docs/how-to/gpus.md)"
    )
