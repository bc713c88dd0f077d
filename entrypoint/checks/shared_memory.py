"""Whether /dev/shm, through which NCCL passes data between GPUs, is large enough."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path("/dev/shm")  # noqa: S108 -- looked at, and nothing is written
ENOUGH_BYTES = 1 << 30
"""What NVIDIA recommends, `--shm-size=1g`
(https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html)."""
SHARING = 2
"""GPUs of one container."""


def shared_memory_warning(gpus: int, folder: Path = FOLDER) -> str | None:
    """Return what to say where several GPUs of this container share too little."""
    if gpus < SHARING:
        return None
    try:
        system = os.statvfs(folder)
    except OSError:
        return None
    size = system.f_blocks * system.f_frsize
    if size >= ENOUGH_BYTES:
        return None
    return (
        f"{folder} has {size >> 20} MiB for {gpus} GPUs: NCCL, which passes data between them "
        "through it, may fail with an unhandled system error; give the container --shm-size 1g "
        "(docs/how-to/gpus.md)"
    )
